// Between the host's side of the delta rule and its kernels.
#pragma once

#include "ops/cuda/recurrent/delta_rule.h"

namespace winnow::ops::cuda {

/// A row of each sequence.
void launch_delta_step(const DeltaRuleShape& heads, const DeltaRule& rule,
                       const RecurrentRows& rows, cudaStream_t stream);
/// Any number.
void launch_delta_chunks(const DeltaRuleShape& heads, const DeltaRule& rule,
                         const RecurrentRows& rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
