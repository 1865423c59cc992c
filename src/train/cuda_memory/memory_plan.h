// The device memory that a training run needs.
#pragma once

#include <vector>

#include "train/decoder.h"
#include "train/memory_plan.h"

namespace winnow::train::cuda {

/// The choice in the options; if they leave it open, all activations when they fit in `available`
/// bytes.
Keep choose_keep(const TrainingOptions& options, const model::ModelSpec& base,
                 std::size_t available);

/// The memory that the parts of a run take on each device, which has `available` bytes. Needs none.
std::vector<MemoryPlan::Part> device_parts(const TrainingOptions& options,
                                           const model::ModelSpec& base, std::size_t available);

/// Free bytes on each device that trains. Error when there is no device.
std::size_t available_device_memory(const TrainingOptions& options);

}  // namespace winnow::train::cuda
