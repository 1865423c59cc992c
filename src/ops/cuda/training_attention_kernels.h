// Between the host's side of training attention and its kernels.
#pragma once

#ifdef __CUDACC__
#pragma nv_diag_suppress 554  // Matrix<const T> has a conversion to itself, which nobody calls
#endif

#include "ops/cuda/training_attention.h"

namespace winnow::ops::cuda {

/// What backward needs of a query besides its vectors: the log-sum-exp of its scores in powers of
/// two, and the dot product of its output and the output's gradient.
struct QuerySums {
  float normalizer;
  float dot;
};

/// Rows of QuerySums, of which those past the last token have normalizer infinity (all weights are
/// zero): whatever a kernel takes at a time divides it.
inline constexpr int kTrainingRows = 128;

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
  int padded_tokens;  // to kTrainingRows
  int kv_heads;
  QuerySums* sums;  // [query heads, padded_tokens]
};

/// Fills `sums`.
void launch_query_sums(const TrainingBackward& backward, cudaStream_t stream);

/// For any device.
void launch_training_forward(const TrainingForward& forward, cudaStream_t stream);
void launch_training_backward(const TrainingBackward& backward, cudaStream_t stream);

}  // namespace winnow::ops::cuda
