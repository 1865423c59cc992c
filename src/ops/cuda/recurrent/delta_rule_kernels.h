// The interface between the delta rule's host code and its kernels.
#pragma once

#include "ops/cuda/recurrent/delta_rule.h"

namespace winnow::ops::cuda {

/// One row per sequence.
void launch_delta_step(const DeltaRuleShape& heads, const DeltaRule& rule,
                       const RecurrentRows& rows, cudaStream_t stream);
/// Any number of rows per sequence.
void launch_delta_chunks(const DeltaRuleShape& heads, const DeltaRule& rule,
                         const RecurrentRows& rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
