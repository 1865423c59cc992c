// A block of scores in the register layout of the matrix instructions, its softmax, and
// its weights as operands.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "base/dtype.h"
#include "ops/cuda/pages/kv_codes.cuh"

namespace winnow::ops::cuda {

/// Loads four [8, 8] matrices of 16-bit numbers from shared memory; each lane addresses one row.
template <bool Transposed>
__device__ void load_matrices(std::uint32_t (&x)[4], const std::byte* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address));
  }
}

/// The lanes hold a block's scores [rows, N] like the results of mma.m16n8 and wgmma: lane 4 r + c
/// holds columns 8 i + 2 c and the next, of rows r and r + 8. Bits 2 i and 2 i + 1 mark the
/// columns of a row that are below `end`.
template <int N>
__device__ std::uint32_t columns_below(int end) {
  const int from_first = min(max(end - static_cast<int>(threadIdx.x) % 4 * 2, 0), N);
  const int count = from_first / 8 * 2 + min(from_first % 8, 2);
  return count == 32 ? ~0U : (1U << count) - 1;
}

/// Sets the scores of unseen keys to -infinity.
template <int Scores>
__device__ __forceinline__ void mask(float (&scores)[Scores], const std::uint32_t (&seen)[2]) {
#pragma unroll
  for (int i = 0; i < Scores; ++i) {
    const int column = i / 4 * 2 + i % 2;
    scores[i] = (seen[i / 2 % 2] >> column & 1U) != 0 ? scores[i] : -INFINITY;
  }
}

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The running softmax of a lane's two rows.
struct SoftmaxRows {
  float largest[2] = {-INFINITY, -INFINITY};  // the score that weights are relative to
  float sum[2] = {0.0F, 0.0F};                // of the lane's own columns

  /// Converts scores to weights exp2(scale (score - largest)) and adds them up. Returns true if
  /// earlier weights, in the caller's sums and outputs, must be multiplied by `factor` first. A
  /// largest score that is exceeded only a little is kept: weights up to 2^8 do no harm.
  template <int Scores>
  __device__ __forceinline__ bool weigh(float (&scores)[Scores], float scale, float (&factor)[2]) {
    constexpr float kHarmless = 8.0F;
    // Four chains of maxima and four of sums: a single chain would be limited by latency.
    float of_columns[4] = {largest[0], largest[0], largest[1], largest[1]};
#pragma unroll
    for (int i = 0; i < Scores; ++i) {
      of_columns[i % 4] = fmaxf(of_columns[i % 4], scores[i]);
    }
    float most[2] = {fmaxf(of_columns[0], of_columns[1]), fmaxf(of_columns[2], of_columns[3])};
    bool grown = false;
    float base[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      most[row] = fmaxf(most[row], __shfl_xor_sync(0xFFFFFFFFU, most[row], 1));
      most[row] = fmaxf(most[row], __shfl_xor_sync(0xFFFFFFFFU, most[row], 2));
      const bool more = (most[row] - largest[row]) * scale > kHarmless;
      const float shrunk = exp2_of((largest[row] - most[row]) * scale);
      factor[row] = more ? shrunk : 1.0F;
      largest[row] = more ? most[row] : largest[row];
      grown = grown || more;
      sum[row] *= factor[row];
      base[row] = largest[row] == -INFINITY ? 0.0F : largest[row] * scale;
    }
    float sums[4] = {sum[0], 0.0F, sum[1], 0.0F};
#pragma unroll
    for (int i = 0; i < Scores; ++i) {
      scores[i] = exp2_of(scores[i] * scale - base[i / 2 % 2]);
      sums[i % 4] += scores[i];
    }
    sum[0] = sums[0] + sums[1];
    sum[1] = sums[2] + sums[3];
    return __any_sync(0xFFFFFFFFU, grown);
  }

  /// The sums of whole rows.
  __device__ void sums(float (&result)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      result[row] = sum[row] + __shfl_xor_sync(0xFFFFFFFFU, sum[row], 1);
      result[row] += __shfl_xor_sync(0xFFFFFFFFU, result[row], 2);
    }
  }

  /// One over the sums of whole rows.
  __device__ void reciprocals(float (&result)[2]) const {
    sums(result);
    result[0] = 1.0F / result[0];
    result[1] = 1.0F / result[1];
  }
};

template <int Values>
__device__ void multiply_rows(float (&out)[Values], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < Values; ++i) {
    out[i] *= factor[i / 2 % 2];
  }
}

template <class Pair>
__device__ std::uint32_t round_pair(float a, float b) {
  if constexpr (std::is_same_v<Pair, __half2>) {
    return bits_of(__floats2half2_rn(a, b));
  } else {
    return bits_of(__floats2bfloat162_rn(a, b));
  }
}

/// Two numbers as a pair of bf16.
template <class Pair>
__device__ std::uint32_t from_bf16(std::uint32_t bits) {
  if constexpr (std::is_same_v<Pair, __half2>) {
    return round_pair<Pair>(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000U));
  } else {
    return bits;
  }
}

/// The weights [rows, N] as left operands of N / 16 products: `operand` entries from i on serve the
/// product over columns 16 (i / 4) and on.
template <class Pair, int Scores>
__device__ __forceinline__ void to_operands(const float (&weights)[Scores],
                                            std::uint32_t (&operand)[Scores / 2]) {
#pragma unroll
  for (int i = 0; i < Scores / 2; ++i) {
    operand[i] = round_pair<Pair>(weights[2 * i], weights[2 * i + 1]);
  }
}

/// Writes a lane's part of a product [rows, D], times `factor`, to its two rows if they are
/// `inside`. Neighbouring lanes swap halves, so that four of them write 32 contiguous
/// bytes.
template <int D>
__device__ __forceinline__ void store_rows(const float (&x)[D / 2], const float (&factor)[2],
                                           bf16* const (&rows)[2],
                                           const bool (&inside)[2] = {true, true}) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int i = 0; i < D / 8; i += 2) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const auto pair_of = [&](int tile) {
        const float* pair = x + 4 * tile + 2 * row;
        return round_pair<__nv_bfloat162>(pair[0] * factor[row], pair[1] * factor[row]);
      };
      const std::uint32_t even_tile = pair_of(i);
      const std::uint32_t odd_tile = pair_of(i + 1);
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFU, odd ? even_tile : odd_tile, 1);
      const uint2 both = odd ? uint2{other, odd_tile} : uint2{even_tile, other};
      const int channel = 8 * (i + lane % 2) + lane % 4 / 2 * 4;
      if (inside[row]) {
        *reinterpret_cast<uint2*>(rows[row] + channel) = both;
      }
    }
  }
}

}  // namespace winnow::ops::cuda
