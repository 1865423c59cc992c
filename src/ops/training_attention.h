// Attention for training: a whole sequence at once, with DMS's bias beyond the window.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// Operands of forward and backward. Query i sees key j iff first_key[i] <= j <= i and, with a
/// reach, i - j < reach. Its score is
///   cap(scale * q_i . k_j) + (i - j > window ? bias_j : 0)
/// (docs/method.md), cap(s) = soft_cap * tanh(s / soft_cap). bias_j is log(1 - alpha) for the
/// decision about key j, per KV head.
struct TrainingAttention {
  int head_dim = 0;  // D, a multiple of 8
  int group = 0;     // query heads per KV head (G)
  int window = 0;
  float scale = 0.0F;
  /// [T], non-decreasing: where the document of each token begins.
  std::span<const std::int32_t> first_key;
  Matrix<const float> queries;  // [T, kv_heads * G * D], after RoPE
  Matrix<const float> keys;     // [T, kv_heads * D], after RoPE
  Matrix<const float> values;   // [T, kv_heads * D]
  Matrix<const float> bias;     // [T, kv_heads], or empty: plain causal attention
  int reach = 0;                // 0: all keys up to the query's own
  float soft_cap = 0.0F;        // 0: none
  /// [kv_heads * G] or empty: logits that join the softmax's denominator without a value.
  std::span<const float> sinks = {};
};

/// out [T, kv_heads * G * D]; normalizers [T, kv_heads * G]: log-sum-exp of each query's scores and
/// its sink, for the backward pass. No T x T matrix exists.
void training_attention(Workspace& workspace, const TrainingAttention& attention, Matrix<float> out,
                        Matrix<float> normalizers);

/// Gradients that training_attention_backward adds to. `bias` is empty when the attention has none;
/// empty `sinks` are not computed.
struct TrainingAttentionGradients {
  Matrix<float> queries;
  Matrix<float> keys;
  Matrix<float> values;
  Matrix<float> bias;
  std::span<float> sinks = {};  // [kv_heads * G]
};

/// Adds the gradients of queries, keys, values, bias and sinks, from the gradient of `out`. Has the
/// same bits on any number of threads.
void training_attention_backward(Workspace& workspace, const TrainingAttention& attention,
                                 Matrix<const float> out, Matrix<const float> normalizers,
                                 Matrix<const float> dout,
                                 const TrainingAttentionGradients& gradients);

}  // namespace winnow::ops
