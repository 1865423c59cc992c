// The memory that weights, gradients and moments would take on GPUs.
#pragma once

#include <cstddef>

#include "train/options.h"

namespace winnow::train {

/// Bytes on each of options.ranks GPUs, including the teacher's and what products in fp8 take,
/// without activations. Computed from the shapes alone, on any machine. In stage 3 two layers are
/// whole at a time, and either embedding or head; it has no products in fp8.
std::size_t device_state_bytes(const TrainingOptions& options, const model::ModelSpec& base,
                               ZeroStage stage);

}  // namespace winnow::train
