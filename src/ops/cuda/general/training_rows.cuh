// Shared by the general kernels of training attention: rows of bf16 matrices as floats in shared
// memory, visibility, and scores.
#pragma once

#include "ops/cuda/eight.cuh"
#include "ops/cuda/general/attention_tile.cuh"
#include "ops/cuda/general/query_rows.h"
#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {

/// All threads of a block load rows [0, count) of shared memory: from(row) points to head_dim
/// numbers, or is null for missing rows, which become zeros.
template <class From>
__device__ void load_rows(float* to, int count, int head_dim, const From& from) {
  const int chunks = head_dim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < count * chunks;
       i += static_cast<int>(blockDim.x)) {
    const bf16* row = from(i / chunks);
    const int channel = i % chunks * 8;
    const Eight x = row != nullptr ? load_eight(row + channel) : Eight{};
    float* at = to + i / chunks * tile_stride(head_dim) + channel;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      at[k] = x.values[k];
    }
  }
}

/// Where the channels of a head begin in a token's row of a matrix; null after the last token.
template <class T>
__device__ T* head_of(const Matrix<T>& matrix, int token, int head, int head_dim) {
  return token < static_cast<int>(matrix.rows)
             ? matrix.data + token * matrix.stride + static_cast<std::size_t>(head) * head_dim
             : nullptr;
}

/// The query rows of a KV head: token by token, its query heads within.
struct QueryRows {
  int kv_head;
  int group;
  int count;  // rows

  __device__ QueryRows(const TrainingAttention& attention, int tokens, int kv_head)
      : kv_head(kv_head), group(attention.group), count(tokens * attention.group) {}
  [[nodiscard]] __device__ int token(int row) const { return row / group; }
  [[nodiscard]] __device__ int head(int row) const { return kv_head * group + row % group; }
  template <class T>
  __device__ T* in(const Matrix<T>& matrix, int row, int head_dim) const {
    return head_of(matrix, token(row), head(row), head_dim);
  }
};

/// Scores of queries and keys, and whether they see each other.
struct TrainingScores {
  LogitRule cap;
  int window;
  int reach;

  __device__ explicit TrainingScores(const TrainingAttention& attention)
      : cap({attention.scale, attention.soft_cap, nullptr}),
        window(attention.window),
        reach(attention.reach) {}

  [[nodiscard]] __device__ bool sees(int query, int first_key, int key) const {
    return key <= query && key >= first_key && (reach == 0 || query - key < reach);
  }
  /// The first key that a query sees.
  [[nodiscard]] __device__ int first_seen(int query, int first_key) const {
    return reach == 0 ? first_key : max(first_key, query - reach + 1);
  }
  /// The term that is added to the capped logit.
  [[nodiscard]] __device__ float bias(int query, int key, float of_key) const {
    return query - key > window ? of_key : 0.0F;
  }
  /// A score in powers of two, from a capped logit in powers of e.
  [[nodiscard]] static __device__ float in_powers_of_two(float capped, float bias) {
    return (capped + bias) * std::numbers::log2e_v<float>;
  }
  /// The gradient of a product, from its score's gradient.
  [[nodiscard]] __device__ float dproduct(float dscore, float capped) const {
    const float t = cap.soft_cap > 0.0F ? capped / cap.soft_cap : 0.0F;  // tanh
    return dscore * (1.0F - t * t) * cap.scale;
  }
};

/// The bias of a key; 0 if there are no biases.
inline __device__ float key_bias(const TrainingAttention& attention, int key, int kv_head) {
  return attention.bias.rows != 0 && key < static_cast<int>(attention.bias.rows)
             ? attention.bias.data[key * attention.bias.stride + kv_head]
             : 0.0F;
}

/// Loads a tile's keys and values, from token `first` on, and their biases [kEntryTile].
inline __device__ void load_keys(const TrainingAttention& attention, const EntryTile& tile,
                                 float* biases, int first, int kv_head) {
  const int dim = attention.head_dim;
  load_rows(tile.keys, kEntryTile, dim,
            [&](int row) { return head_of(attention.keys, first + row, kv_head, dim); });
  load_rows(tile.values, kEntryTile, dim,
            [&](int row) { return head_of(attention.values, first + row, kv_head, dim); });
  if (threadIdx.x < kEntryTile) {
    biases[threadIdx.x] = key_bias(attention, first + static_cast<int>(threadIdx.x), kv_head);
  }
}

}  // namespace winnow::ops::cuda
