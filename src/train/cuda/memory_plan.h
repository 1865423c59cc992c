// What a training run needs of a device.
#pragma once

#include <string>
#include <vector>

#include "train/decoder.h"
#include "train/memory_plan.h"

namespace winnow::train::cuda {

/// The parts of a run that keeps `keep`, in device memory.
std::vector<MemoryPlan::Part> device_parts(const TrainingOptions& options, const ModelConfig& base,
                                           Keep keep);

/// All activations where `available` bytes hold them, else what makes them anew.
Keep choose_keep(const TrainingOptions& options, const ModelConfig& base, std::size_t available);

}  // namespace winnow::train::cuda
