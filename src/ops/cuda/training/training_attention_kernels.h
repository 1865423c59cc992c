// The interface between training attention's host code and its kernels.
#pragma once

#include <cuda.h>

#ifdef __CUDACC__
#pragma nv_diag_suppress 554  // Matrix<const T> has an unused conversion to itself
#endif

#include "ops/cuda/training/training_attention.h"
#include "ops/cuda/training/training_attention_scratch.h"

namespace winnow::ops::cuda {

struct TrainingForward {
  TrainingAttention attention;
  Matrix<bf16> out;
  Matrix<float> normalizers;
  int tokens;
  int kv_heads;
};

struct TrainingBackward {
  TrainingAttention attention;
  Matrix<const bf16> out;
  Matrix<const float> normalizers;
  Matrix<const bf16> dout;
  TrainingAttentionGradients gradients;
  int tokens;
  int padded_tokens;  // a multiple of kTrainingRows
  int kv_heads;
  QuerySums* sums;  // [query heads, padded_tokens]
};

/// Writes `sums`.
void launch_query_sums(const TrainingBackward& backward, cudaStream_t stream);

/// Queries of a tile of Hopper's forward.
constexpr int forward_queries(int head_dim) {
  return head_dim == 64 ? 192 : 128;
}

struct TrainingForwardSm90 {
  CUtensorMap queries;  // boxes of forward_queries() rows
  CUtensorMap keys;     // boxes of kTrainingRows rows
  CUtensorMap values;   // the same
  TrainingForward forward;
  int padded_tokens;  // a multiple of kTrainingRows
  /// [kv_heads, padded_tokens]: the term that is added to products before they are multiplied by
  /// the scale; null without bias.
  float* bias;
  std::int32_t* next_tile;  // number of tiles that have been taken
};

/// Writes `bias` and `next_tile`.
void launch_forward_plan(const TrainingForwardSm90& forward, cudaStream_t stream);

/// For Hopper, head dimensions 64 and 128.
void launch_training_forward_sm90(const TrainingForwardSm90& forward, cudaStream_t stream);

struct TrainingBackwardSm90 {
  CUtensorMap queries;  // boxes of backward_queries() rows
  CUtensorMap dout;     // the same
  CUtensorMap keys;     // boxes of kTrainingRows rows
  CUtensorMap values;   // the same
  TrainingBackward backward;
  float* dqueries;   // the gradients of queries in float, in the kernel's register layout
  int query_blocks;  // of backward_queries()
  /// [query heads, query_blocks]: the first of the keys whose turn it is to add to dqueries.
  std::int32_t* next_keys;
  std::int32_t* document_end;  // [T]: the first query from the key on that does not see it
  std::int32_t* next_item;     // number of key blocks that have been taken
};

/// Writes `next_keys`, `document_end` and `next_item`.
void launch_backward_plan(const TrainingBackwardSm90& backward, cudaStream_t stream);

/// For Hopper, head dimensions 64 and 128.
void launch_training_backward_sm90(const TrainingBackwardSm90& backward, cudaStream_t stream);
/// Its last step: copies the gradients of queries from `dqueries` to the caller's matrix.
void launch_store_dqueries(const TrainingBackwardSm90& backward, cudaStream_t stream);

/// For any device.
void launch_training_forward(const TrainingForward& forward, cudaStream_t stream);
void launch_training_backward(const TrainingBackward& backward, cudaStream_t stream);

}  // namespace winnow::ops::cuda
