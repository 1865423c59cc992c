// Encodes rows of activations as e4m3 codes in the kernels that compute them.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>
#include <cstdint>

#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/linear/fp8_rows.h"
#include "ops/cuda/linear/weight_codes.cuh"

namespace winnow::ops::cuda {

/// Threads of a block that writes a row of codes.
inline constexpr int kCodeThreads = 256;

/// Codes of values that are in range.
__device__ inline uint2 codes_of(const Eight& x, float factor) {
  std::uint32_t words[2] = {};
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float2 pair{x.values[i] * factor, x.values[i + 1] * factor};
    words[i / 4] |= std::uint32_t{__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3)}
                    << (i % 4 * 8);
  }
  return {words[0], words[1]};
}

/// The larger magnitude; infinity if `value` is NaN.
__device__ inline float larger_magnitude(float largest, float value) {
  return isnan(value) ? INFINITY : fmaxf(largest, fabsf(value));
}

__device__ inline float largest_of(const Eight& x) {
  float largest = 0.0F;
#pragma unroll
  for (const float value : x.values) {
    largest = larger_magnitude(largest, value);
  }
  return largest;
}

/// From values whose largest magnitude is known to their codes, and back.
struct CodeScale {
  float factor = 0.0F;
  float scale = 0.0F;
};

__device__ inline CodeScale scale_of(float largest) {
  const bool vanishes = largest <= kF8E4M3Max / FLT_MAX;
  return vanishes ? CodeScale{} : CodeScale{kF8E4M3Max / largest, largest / kF8E4M3Max};
}

/// The largest x of a block of kCodeThreads threads, returned to each. Once per kernel.
__device__ inline float block_max(float x) {
  __shared__ float parts[kCodeThreads / kLanes];
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0U, x, distance));
  }
  if (threadIdx.x % kLanes == 0) {
    parts[threadIdx.x / kLanes] = x;
  }
  __syncthreads();
  for (const float part : parts) {
    x = fmaxf(x, part);
  }
  return x;
}

/// A block of kCodeThreads threads writes row blockIdx.x of `out` [.., cols] from the values that
/// `load` returns for a column, rounded to bf16 first. A thread keeps its first kKept in registers
/// and loads the others twice.
template <int kKept, class Load>
__device__ void write_codes(const Fp8RowsTo& out, int cols, const Load& load) {
  constexpr int kStep = 8 * kCodeThreads;
  struct alignas(16) Rounded {
    bf16 values[8];
  };
  const auto rounded = [&](int column) {
    Rounded x;
    store_eight(x.values, load(column));
    return x;
  };
  const int begin = 8 * static_cast<int>(threadIdx.x);
  Rounded kept[kKept];
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int column = begin + i * kStep; column < cols) {
      kept[i] = rounded(column);
      largest = fmaxf(largest, largest_of(load_eight(kept[i].values)));
    }
  }
  for (int column = begin + kKept * kStep; column < cols; column += kStep) {
    largest = fmaxf(largest, largest_of(load_eight(rounded(column).values)));
  }
  const auto [factor, scale] = scale_of(block_max(largest));
  if (threadIdx.x == 0) {
    out.scales[blockIdx.x] = scale;
  }
  auto* codes = reinterpret_cast<uint2*>(out.codes + std::size_t{blockIdx.x} * cols);
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int column = begin + i * kStep; column < cols) {
      codes[column / 8] = codes_of(load_eight(kept[i].values), factor);
    }
  }
  for (int column = begin + kKept * kStep; column < cols; column += kStep) {
    codes[column / 8] = codes_of(load_eight(rounded(column).values), factor);
  }
}

}  // namespace winnow::ops::cuda
