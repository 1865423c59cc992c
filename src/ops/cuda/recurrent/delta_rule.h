// The gated delta rule on the device (ops/delta_rule.h; Yang, Kautz and Hatamizadeh 2024).
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {

/// What delta_inputs() leaves, and where the rule's outputs go.
struct DeltaRule {
  const float* mixed = nullptr;  // [T, channels]: queries, keys, values
  const float* gates = nullptr;  // [T, gate_stride]: rates [value_heads], decays [value_heads]
  int gate_stride = 0;
  /// [value_heads] or null: of a head's values, so much is added to its output (Mamba 2).
  const float* skip = nullptr;
  float* out = nullptr;  // [T, value_width]
};

/// As the CPU's delta_rule(), right behind delta_inputs() in the stream: the states of all
/// sequences go on by their rows. The bits of a sequence depend neither on what is beside it nor,
/// of several tokens, on how they are cut. Steps of a token each, which move the states and little
/// else, have a kernel of their own.
void delta_rule(const DeltaRuleShape& heads, const DeltaRule& rule, const RecurrentRows& rows,
                cudaStream_t stream);

}  // namespace winnow::ops::cuda
