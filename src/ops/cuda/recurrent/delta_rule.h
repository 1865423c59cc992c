// The gated delta rule on the device (ops/delta_rule.h; Yang, Kautz and Hatamizadeh 2024).
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

/// The results of delta_inputs(), and the destination of the rule's outputs.
struct DeltaRule {
  const float* mixed = nullptr;  // [T, channels]: queries, keys, values
  const float* gates = nullptr;  // [T, gate_stride]: rates [value_heads], decays [value_heads]
  int gate_stride = 0;
  /// [value_heads] or null: the factor of a head's values that is added to its output (Mamba 2).
  const float* skip = nullptr;
  float* out = nullptr;  // [T, value_width]
};

/// Like the CPU's delta_rule(), directly after delta_inputs() in the stream: advances the states of
/// all sequences by their rows. A sequence's bits depend neither on the other sequences nor, for
/// several tokens, on how they are split. Steps of one token per sequence, whose cost is moving the
/// states, have their own kernel.
void delta_rule(const DeltaRuleShape& heads, const DeltaRule& rule, const RecurrentRows& rows,
                cudaStream_t stream);

}  // namespace winnow::ops::cuda
