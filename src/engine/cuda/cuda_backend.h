// The engine's device when it is a CUDA device.
#pragma once

#include <memory>

#include "engine/runner.h"

namespace winnow::engine {

/// `model` on the CUDA device that `config` names: its weights are copied there. Throws Error when
/// this build or this machine has no such device, or the device no room for the weights. Of a
/// rank's part: `ranks`, which must outlive the backend.
std::unique_ptr<Backend> make_cuda_backend(const model::Model& model, const EngineConfig& config,
                                           parallel::Communicator* ranks = nullptr);

}  // namespace winnow::engine
