// Replaces cuda/ in builds without CUDA.
#include "engine/cuda/cuda_backend.h"

#include "base/error.h"

namespace winnow::engine {

std::unique_ptr<Backend> make_cuda_backend(const model::Model& /*model*/,
                                           const EngineConfig& /*config*/,
                                           parallel::Communicator* /*ranks*/) {
  fail("--device cuda: this build of winnow has no CUDA support (build with -DWINNOW_CUDA=ON)");
}

}  // namespace winnow::engine
