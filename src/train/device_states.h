// The memory that weights, gradients and moments would take on GPUs.
#pragma once

#include <cstddef>

#include "train/options.h"

namespace winnow::train {

/// Bytes on each of options.ranks GPUs, including the teacher's, without activations. Computed from
/// the shapes alone, on any machine. Stage 3 is not implemented on GPUs. The plan for it assumes a
/// 16-bit remainder that makes a bf16 weight an fp32 one, two whole layers at a time, and embedding
/// and head one after the other.
std::size_t device_state_bytes(const TrainingOptions& options, const model::ModelSpec& base,
                               ZeroStage stage);

}  // namespace winnow::train
