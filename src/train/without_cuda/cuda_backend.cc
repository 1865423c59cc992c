// Stands in for cuda/ in builds without it.
#include "train/cuda/cuda_backend.h"

#include "base/error.h"

namespace winnow::train {

std::unique_ptr<Backend> make_cuda_backend(const TrainingOptions& /*options*/,
                                           const ModelConfig& /*base_config*/,
                                           const FindTensor& /*base*/, Parameters& /*parameters*/) {
  fail("--device cuda: this build of winnow knows no CUDA (build with -DWINNOW_CUDA=ON)");
}

}  // namespace winnow::train
