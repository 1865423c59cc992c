#include "train/backend.h"

#include "train/cpu_backend.h"
#include "train/cuda/cuda_backend.h"
#include "train/cuda/supported.h"

namespace winnow::train {

Trained trained_part(const model::ModelSpec& spec) {
  return spec.dms && spec.dms->source == model::DmsConfig::Source::adapter ? Trained::decisions
                                                                           : Trained::everything;
}

void require_training_devices(const TrainingOptions& options, const model::ModelSpec& base_config) {
  if (options.cuda_device) {
    cuda::require_devices(options, base_config);
  }
}

std::unique_ptr<Backend> make_backend(const TrainingOptions& options,
                                      const model::ModelSpec& base_config, const FindTensor& base,
                                      Parameters& parameters, parallel::Communicator& ranks) {
  if (options.cuda_device) {
    return make_cuda_backend(options, base_config, base, parameters, ranks);
  }
  return std::make_unique<CpuBackend>(options, base_config, base, parameters, ranks);
}

}  // namespace winnow::train
