// The inputs of the delta rule, from a recurrent layer's projections: causal convolution, SiLU,
// normalised queries and keys, gates (Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks).
// State spaces (Mamba 2, Dao and Gu 2024), which do not correct, do not normalise lengths.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

struct DeltaInputs {
  /// [T, channels]: queries, keys, values; for a state space values, keys, queries. Taps, bias and
  /// stored inputs have the same order.
  const float* projected = nullptr;
  float* mixed = nullptr;  // [T, channels]: receives the rule's inputs: queries, keys, values
  /// [T, gate_stride]: logits of the rates [value_heads], then of the decays [value_heads].
  /// Replaced by the gates: of delta_gates() or, from the decays' logits, of state_space_gates().
  float* gates = nullptr;
  int gate_stride = 0;
  const float* taps = nullptr;  // [tap_count, channels]
  int tap_count = 0;
  const float* conv_bias = nullptr;   // [channels] or null
  const float* log_decay = nullptr;   // [value_heads]
  const float* decay_bias = nullptr;  // [value_heads]
  RateLimits limits = {};             // for a state space
};

/// mixed = silu(causal_conv(projected)). If heads correct, queries and keys are scaled to the
/// lengths model::query_length() and key_length(). Updates the convolution's last inputs in the
/// states. The sums do not depend on how a text is split.
void delta_inputs(const DeltaRuleShape& heads, const DeltaInputs& inputs, const RecurrentRows& rows,
                  cudaStream_t stream);

}  // namespace winnow::ops::cuda
