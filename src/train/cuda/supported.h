// What training on a device supports.
#pragma once

#include "train/options.h"

namespace winnow::train::cuda {

/// Throws Error naming the first property of a student for which the current device has no kernels.
void require_supported(const TrainingOptions& options, const model::ModelSpec& spec);

/// The same for the devices of all ranks, for a model that training starts from.
void require_devices(const TrainingOptions& options, const model::ModelSpec& base);

}  // namespace winnow::train::cuda
