#include "engine/runner.h"

#include "base/error.h"
#include "engine/cpu_runner.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/saved_copies.h"

namespace winnow::engine {

std::unique_ptr<HostCopies> Runner::make_host_copies(std::size_t max_bytes) {
  return make_saved_copies(*this, max_bytes);
}

std::unique_ptr<Backend> make_backend(const model::Model& model, const EngineConfig& config) {
  require(config.ranks == 1, "--tensor-parallel {}: this command runs models on one rank only",
          config.ranks);
  if (config.cuda_device) {
    return make_cuda_backend(model, config);
  }
  return std::make_unique<CpuBackend>(model);
}

}  // namespace winnow::engine
