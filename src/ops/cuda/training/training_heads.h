// From the product of q, k and v to attention's operands, and back: bias, borrowed channels, q- and
// k-norm, RoPE, all in one pass.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// The borrowed channel of one kind of heads (docs/method.md); none when `channel` is negative.
struct BorrowedChannel {
  int channel = -1;
  /// The distance between heads that have such a channel: the group for queries, 1 for keys.
  int every = 1;
  /// Replaces the channel before q- or k-norm [rows, probes], `stride` elements
  /// apart, 0 for heads beyond `probes`; null: the model's own value times *factor.
  const float* probe = nullptr;
  int probes = 0;
  int stride = 0;
};

/// Operands of forward and backward. Widths count head_dim columns.
struct TrainingHeads {
  int rows = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 8, at most kMostHeadDim
  /// Each query is followed by its head's output gate, which is ignored here: `projected` then
  /// has 2 heads + 2 kv_heads.
  bool output_gates = false;
  bool values_are_keys = false;       // `projected` has no separate values
  const bf16* projected = nullptr;    // [rows, heads + 2 kv_heads]: q, k and v without bias
  const float* bias = nullptr;        // the same width, or null
  bool norms = false;                 // of each query and key head
  const float* query_norm = nullptr;  // [head_dim], or null: weights of 1
  const float* key_norm = nullptr;
  bool own_norms = false;    // weights are [heads of the kind, head_dim]
  float norm_offset = 0.0F;  // is added to the norms' weights: 1 if they are stored relative to 1
  bool centers = false;      // LayerNorm; else RMSNorm
  bool norms_after_rope = false;
  bool value_norm = false;  // RMSNorm of each value head, without weights
  float eps = 0.0F;
  /// The number of a head's first channels that RoPE rotates, even; 0: none; negative: all.
  int rotary = -1;
  bool interleaved = false;  // channels 2 i and 2 i + 1 are a pair; else i and i + half of them
  const float2* angles = nullptr;  // [rows, rotated channels / 2] cosine and sine
  int angle_stride = 0;            // from row to row; 0: the number of angles
  BorrowedChannel query;
  BorrowedChannel key;
  /// The borrowed channel in attention, before RoPE and, if `clear_after_rope`, after it:
  /// its value times this. One float in device memory.
  const float* factor = nullptr;
  bool clear_after_rope = false;
};

/// queries [rows, heads], keys and values [rows, kv_heads]. query_read and key_read [rows,
/// kv_heads] receive the borrowed channels after the norm; null: not needed.
void split_heads(const TrainingHeads& heads, bf16* queries, bf16* keys, bf16* values,
                 float* query_read, float* key_read, cudaStream_t stream);

struct TrainingHeadsGradients {
  const bf16* queries = nullptr;  // of the results
  const bf16* keys = nullptr;
  const bf16* values = nullptr;
  const float* query_read = nullptr;  // null if there is a probe
  const float* key_read = nullptr;
  bf16* projected = nullptr;    // of the operands; replaced
  bf16* query_probe = nullptr;  // [rows, stride]: replaced, 0 beyond `probes`
  bf16* key_probe = nullptr;
  float* query_norm = nullptr;  // of the norms' weights, added to; null: not computed
  float* key_norm = nullptr;
};

/// Backward of split_heads. Gradients of norm weights are summed in any order.
void split_heads_backward(const TrainingHeads& heads, const TrainingHeadsGradients& gradients,
                          cudaStream_t stream);

}  // namespace winnow::ops::cuda
