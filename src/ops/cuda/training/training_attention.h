// Attention for training on the device: packed documents at once, with DMS's bias beyond the
// window.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/cuda/training/training_attention_scratch.h"
#include "ops/matrix.h"

namespace winnow::ops::cuda {

/// Operands of forward and backward: like ops/training_attention.h's, in device memory. Query i
/// sees key j iff first_key[i] <= j <= i and, with a reach, i - j < reach. Its score is
///   cap(scale * q_i . k_j) + (i - j > window ? bias_j : 0)
/// (docs/method.md), cap(s) = soft_cap * tanh(s / soft_cap). Rows of bf16 matrices begin at
/// multiples of 16 bytes.
struct TrainingAttention {
  int head_dim = 0;    // D, a multiple of 8, at most 512
  int group = 0;       // query heads per KV head (G)
  int window = 0;      // >= 0
  float scale = 0.0F;  // > 0
  /// [T], non-decreasing, first_key[i] <= i: where the document of each token begins.
  const std::int32_t* first_key = nullptr;
  Matrix<const bf16> queries;     // [T, kv_heads * G * D], after RoPE
  Matrix<const bf16> keys;        // [T, kv_heads * D], after RoPE
  Matrix<const bf16> values;      // [T, kv_heads * D]
  Matrix<const float> bias = {};  // [T, kv_heads], at most 0, may be -infinity; empty: plain causal
  int reach = 0;                  // 0: all keys up to the query's own
  float soft_cap = 0.0F;          // 0: none
  /// [kv_heads * G] or null: logits that join the softmax's denominator without a value.
  const float* sinks = nullptr;
};

/// Gradients that training_attention_backward writes (it does not add). `bias` is empty if the
/// attention has none; without `sinks` their gradient is not computed.
struct TrainingAttentionGradients {
  Matrix<bf16> queries;
  Matrix<bf16> keys;
  Matrix<bf16> values;
  Matrix<float> bias;
  float* sinks = nullptr;  // [kv_heads * G]
};

/// `best` is the fastest kernel for this attention and device; `portable` are kernels for
/// any device, if they support it; `general` supports all (general/training_attention.h).
enum class TrainingKernel { best, portable, general };

/// out [T, kv_heads * G * D]; normalizers [T, kv_heads * G]: log-sum-exp of each query's scores and
/// its sink, for the backward pass. Operands of products are bf16, sums and exponentials float.
/// Nothing waits for the host. Throws Error if shapes do not match.
void training_attention(const TrainingAttention& attention, Matrix<bf16> out,
                        Matrix<float> normalizers, std::byte* scratch, cudaStream_t stream,
                        TrainingKernel kernel = TrainingKernel::best);

/// Writes the gradients of queries, keys, values, bias and sinks, from the gradient of `out`. The
/// same operands give the same bits on the same kind of device.
void training_attention_backward(const TrainingAttention& attention, Matrix<const bf16> out,
                                 Matrix<const float> normalizers, Matrix<const bf16> dout,
                                 const TrainingAttentionGradients& gradients, std::byte* scratch,
                                 cudaStream_t stream, TrainingKernel kernel = TrainingKernel::best);

}  // namespace winnow::ops::cuda
