// Training on a CUDA device.
#pragma once

#include "train/backend.h"

namespace winnow::train {

/// make_backend() for options.cuda_device; other ranks use the devices after it. Throws Error
/// when this build or this machine has no such device, or the device has too little memory.
std::unique_ptr<Backend> make_cuda_backend(const TrainingOptions& options,
                                           const model::ModelSpec& base_config,
                                           const FindTensor& base, Parameters& parameters,
                                           parallel::Communicator& ranks);

}  // namespace winnow::train
