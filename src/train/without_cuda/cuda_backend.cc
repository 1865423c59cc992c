// Replaces cuda/ in builds without CUDA.
#include "train/cuda/cuda_backend.h"

#include "base/device_list.h"
#include "base/error.h"
#include "train/cuda/supported.h"
#include "train/cuda_memory/memory_plan.h"

namespace winnow::train {
namespace {

[[noreturn]] void refuse() {
  fail("--device cuda: {}", list_devices().problem);
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const TrainingOptions& /*options*/,
                                           const model::ModelSpec& /*base_config*/,
                                           const FindTensor& /*base*/, Parameters& /*parameters*/,
                                           parallel::Communicator& /*ranks*/) {
  refuse();
}

namespace cuda {

void require_devices(const TrainingOptions& /*options*/, const model::ModelSpec& /*base*/) {
  refuse();
}

std::size_t available_device_memory(const TrainingOptions& /*options*/) {
  refuse();
}

}  // namespace cuda
}  // namespace winnow::train
