// What the delta rule takes of a recurrent layer's projections: causal convolution, SiLU, queries
// and keys of fixed lengths, gates (Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks). State
// spaces (Mamba 2, Dao and Gu 2024), which do not correct, leave lengths as they are.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

struct DeltaInputs {
  /// [T, channels]: queries, keys, values; of a state space values, keys, queries. So lie taps,
  /// bias and what states keep.
  const float* projected = nullptr;
  float* mixed = nullptr;  // [T, channels]: receives what the rule takes: queries, keys, values
  /// [T, gate_stride]: logits of the rates [value_heads], then of the decays [value_heads]; become
  /// the gates of delta_gates() or, of the latter logits, of state_space_gates().
  float* gates = nullptr;
  int gate_stride = 0;
  const float* taps = nullptr;  // [tap_count, channels]
  int tap_count = 0;
  const float* conv_bias = nullptr;   // [channels] or null
  const float* log_decay = nullptr;   // [value_heads]
  const float* decay_bias = nullptr;  // [value_heads]
  RateLimits limits = {};             // of a state space
};

/// mixed = silu(causal_conv(projected)), in which queries and keys, of heads that correct, become
/// of the lengths that model::query_length() and key_length() say; the convolution's last inputs in
/// the states go on. The sums do not depend on how a text is cut.
void delta_inputs(const DeltaRuleShape& heads, const DeltaInputs& inputs, const RecurrentRows& rows,
                  cudaStream_t stream);

}  // namespace winnow::ops::cuda
