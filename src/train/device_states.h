// What weights, gradients and moments would take on GPUs.
#pragma once

#include <cstddef>

#include "train/options.h"

namespace winnow::train {

/// Bytes on each of options.ranks GPUs, the teacher's with them, activations not. Computed from the
/// shapes alone, on any machine. GPUs do not have stage 3: it is planned with a 16-bit remainder
/// that makes a bf16 weight an fp32 one, two layers whole at a time, and embedding and head in
/// turn.
std::size_t device_state_bytes(const TrainingOptions& options, const model::ModelSpec& base,
                               ZeroStage stage);

}  // namespace winnow::train
