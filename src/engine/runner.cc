#include "engine/runner.h"

#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"

namespace winnow::engine {

std::unique_ptr<Backend> make_backend(const model::Model& model, const EngineConfig& config) {
  if (config.cuda_device) {
    return make_cuda_backend(model, config);
  }
  return std::make_unique<CpuBackend>(model);
}

}  // namespace winnow::engine
