// Training on a CUDA device.
#pragma once

#include "train/backend.h"

namespace winnow::train {

/// make_backend() on options.cuda_device, of other ranks on the devices behind it. Throws Error
/// when this build or this machine has no such device, or the device no room.
std::unique_ptr<Backend> make_cuda_backend(const TrainingOptions& options,
                                           const model::ModelSpec& base_config,
                                           const FindTensor& base, Parameters& parameters,
                                           parallel::Communicator& ranks);

}  // namespace winnow::train
