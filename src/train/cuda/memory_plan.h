// What a training run needs of a device.
#pragma once

#include <vector>

#include "train/decoder.h"
#include "train/memory_plan.h"

namespace winnow::train::cuda {

/// What the options say; all activations where they leave it open and they fit in `available`
/// bytes.
Keep choose_keep(const TrainingOptions& options, const model::ModelSpec& base,
                 std::size_t available);

/// What the parts of a run take in the memory of each device.
std::vector<MemoryPlan::Part> device_parts(const TrainingOptions& options,
                                           const model::ModelSpec& base);

/// Bytes that are free on each device that trains. Error when there is none.
std::size_t available_device_memory(const TrainingOptions& options);

}  // namespace winnow::train::cuda
