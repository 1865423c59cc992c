// Replaces cuda/ in builds without CUDA.
#include "engine/cuda/cuda_backend.h"

#include "base/device_list.h"
#include "base/error.h"

namespace winnow::engine {

std::unique_ptr<Backend> make_cuda_backend(const model::Model& /*model*/,
                                           const EngineConfig& /*config*/,
                                           parallel::Communicator* /*ranks*/) {
  fail("--device cuda: {}", list_devices().problem);
}

}  // namespace winnow::engine
