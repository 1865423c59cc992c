// Shared by the portable kernels of training attention: tiles of 64 rows in shared memory, and
// products, for which each of four warps computes 16 rows (mma.sync).
#pragma once

#include <algorithm>
#include <numbers>

#include "ops/cuda/score_tile.cuh"
#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kTileThreads = 128;

/// Rows [kTileRows, D]. Eight neighbouring rows' 16-byte chunks are in different banks.
template <int D>
struct RowTile {
  static constexpr int kStride = D + 8;
  bf16 rows[kTileRows * kStride];

  __device__ const std::byte* at(int row, int channel) const {
    return reinterpret_cast<const std::byte*>(rows + row * kStride + channel);
  }

  /// Columns [column, column + head_dim) of rows `first` and on; zeros outside.
  __device__ void load(const Matrix<const bf16>& from, int first, int column, int head_dim) {
    constexpr int kChunks = D / 8;
    for (int i = threadIdx.x; i < kTileRows * kChunks; i += kTileThreads) {
      const int row = i / kChunks;
      const int channel = i % kChunks * 8;
      const auto source = static_cast<std::size_t>(first + row);
      uint4 chunk{};
      if (source < from.rows && channel < head_dim) {
        chunk =
            *reinterpret_cast<const uint4*>(from.data + source * from.stride + column + channel);
      }
      *reinterpret_cast<uint4*>(rows + row * kStride + channel) = chunk;
    }
  }
};

/// d [16, kTileRows] = rows [row, row + 16) of a times all rows of b, over the channels.
template <int D>
__device__ void multiply_rows_of(const RowTile<D>& a, int row, const RowTile<D>& b,
                                 float (&d)[kTileRows / 2]) {
  const int lane = threadIdx.x % 32;
  float(&tiles)[kTileRows / 8][4] = reinterpret_cast<float(&)[kTileRows / 8][4]>(d);
#pragma unroll
  for (float& x : d) {
    x = 0.0F;
  }
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    std::uint32_t left[4];
    load_matrices<false>(left, a.at(row + lane % 16, k + lane / 16 * 8));
#pragma unroll
    for (int t = 0; t < kTileRows / 8; t += 2) {
      std::uint32_t right[4];
      load_matrices<false>(right, b.at(8 * t + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
      multiply<__nv_bfloat162>(tiles[t], left, right[0], right[1]);
      multiply<__nv_bfloat162>(tiles[t + 1], left, right[2], right[3]);
    }
  }
}

/// d [16, D] += a [16, kTileRows], rounded to bf16, times b.
template <int D>
__device__ void add_product(const float (&a)[kTileRows / 2], const RowTile<D>& b,
                            float (&d)[D / 2]) {
  const int lane = threadIdx.x % 32;
  float(&tiles)[D / 8][4] = reinterpret_cast<float(&)[D / 8][4]>(d);
  std::uint32_t operands[kTileRows / 4];
  to_operands<__nv_bfloat162>(a, operands);
#pragma unroll
  for (int k = 0; k < kTileRows; k += 16) {
    const auto& left = reinterpret_cast<const std::uint32_t(&)[4]>(operands[k / 4]);
#pragma unroll
    for (int t = 0; t < D / 8; t += 2) {
      std::uint32_t right[4];
      load_matrices<true>(right, b.at(k + lane / 8 % 2 * 8 + lane % 8, 8 * t + lane / 16 * 8));
      multiply<__nv_bfloat162>(tiles[t], left, right[0], right[1]);
      multiply<__nv_bfloat162>(tiles[t + 1], left, right[2], right[3]);
    }
  }
}

/// Writes a lane's part of a product [16, D], times `factor`, to the rows that begin at `first`.
template <int D>
__device__ void store_product(const float (&x)[D / 2], const float (&factor)[2],
                              const Matrix<bf16>& to, int first, int column, int head_dim) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const auto target = static_cast<std::size_t>(first + lane / 4 + 8 * row);
    if (target >= to.rows) {
      continue;
    }
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const int channel = 8 * i + lane % 4 * 2;
      if (channel < head_dim) {
        *reinterpret_cast<std::uint32_t*>(to.data + target * to.stride + column + channel) =
            round_pair<__nv_bfloat162>(x[4 * i + 2 * row] * factor[row],
                                       x[4 * i + 2 * row + 1] * factor[row]);
      }
    }
  }
}

/// Converts products of queries and keys to scores, in powers of two.
struct ScoreRule {
  int window;
  float scale;  // times log2(e)

  __device__ explicit ScoreRule(const TrainingAttention& attention)
      : window(attention.window), scale(attention.scale * std::numbers::log2e_v<float>) {}
  /// `bias` is key j's, in powers of two; first_key is query i's.
  __device__ float operator()(float product, int i, int first_key, int j, float bias) const {
    const float score = product * scale + (i - j > window ? bias : 0.0F);
    return first_key <= j && j <= i ? score : -INFINITY;
  }
};

/// The bias of key j in powers of two; zero without bias.
__device__ inline float bias_of(const TrainingAttention& attention, int j, int kv_head) {
  const auto row = static_cast<std::size_t>(j);
  return row < attention.bias.rows ? attention.bias.data[row * attention.bias.stride + kv_head] *
                                         std::numbers::log2e_v<float>
                                   : 0.0F;
}

/// The blocks of keys that some query of [first, first + kTileRows) sees.
struct KeyBlocks {
  int begin;
  int end;
  __device__ KeyBlocks(const TrainingAttention& attention, int first, int tokens)
      : begin(attention.first_key[first] / kTileRows),
        end((min(first + kTileRows, tokens) - 1) / kTileRows + 1) {}
};

/// Calls `f` with the smallest multiple of 32 that is at least head_dim, as a constant.
template <class F>
void with_padded_dim(int head_dim, F&& f) {
  switch ((head_dim + 31) / 32) {
    case 1:
      return f(std::integral_constant<int, 32>());
    case 2:
      return f(std::integral_constant<int, 64>());
    case 3:
      return f(std::integral_constant<int, 96>());
    default:
      return f(std::integral_constant<int, 128>());
  }
}

}  // namespace winnow::ops::cuda
