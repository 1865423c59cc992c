// What a training run needs of a device.
#pragma once

#include <vector>

#include "train/decoder.h"
#include "train/memory_plan.h"

namespace winnow::train::cuda {

/// What the options say; all activations where they leave it open and the device has room.
Keep choose_keep(const TrainingOptions& options, const model::ModelSpec& base);

/// What the parts of a run take in device memory.
std::vector<MemoryPlan::Part> device_parts(const TrainingOptions& options,
                                           const model::ModelSpec& base);

/// Bytes that are free on the device that trains. Error when there is none.
std::size_t available_device_memory(const TrainingOptions& options);

}  // namespace winnow::train::cuda
