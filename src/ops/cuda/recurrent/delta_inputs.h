// What the delta rule takes of a recurrent layer's projections: causal convolution, SiLU, queries
// and keys of fixed lengths, gates (Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks).
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

struct DeltaInputs {
  const float* projected = nullptr;  // [T, channels]: queries, keys, values
  float* mixed = nullptr;            // [T, channels]: receives what the rule takes
  /// [T, gate_stride]: logits of the rates [value_heads], then of the decays [value_heads]; become
  /// the gates of delta_gates().
  float* gates = nullptr;
  int gate_stride = 0;
  const float* taps = nullptr;  // [tap_count, channels]
  int tap_count = 0;
  const float* log_decay = nullptr;   // [value_heads]
  const float* decay_bias = nullptr;  // [value_heads]
};

/// mixed = silu(causal_conv(projected)), in which queries and keys become of the lengths that
/// model::query_length() and key_length() say; the convolution's last inputs in the states go on.
/// The sums do not depend on how a text is cut.
void delta_inputs(const DeltaRuleShape& heads, const DeltaInputs& inputs, const RecurrentRows& rows,
                  cudaStream_t stream);

}  // namespace winnow::ops::cuda
