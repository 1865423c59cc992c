// The engine's backend for a CUDA device.
#pragma once

#include <memory>

#include "engine/runner.h"

namespace winnow::engine {

/// Copies the weights of `model` to the CUDA device that `config` names. Throws Error when this
/// build or this machine has no such device, or the device has no room for the weights. If `model`
/// is a rank's part, `ranks` must outlive the backend.
std::unique_ptr<Backend> make_cuda_backend(const model::Model& model, const EngineConfig& config,
                                           parallel::Communicator* ranks = nullptr);

}  // namespace winnow::engine
