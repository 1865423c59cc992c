#include "train/cuda_memory/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/cuda/device.h"
#include "parallel/launched_as.h"
#include "parallel/rank_device.h"

namespace winnow::train::cuda {

std::size_t available_device_memory(const TrainingOptions& options) {
  std::size_t available = std::numeric_limits<std::size_t>::max();
  const int ranks = parallel::launched_as() ? 1 : options.ranks;  // of this process
  for (int rank = 0; rank < ranks; ++rank) {
    winnow::cuda::use_device(parallel::device_of_rank(*options.cuda_device, rank, options.ranks));
    available = std::min(available, winnow::cuda::free_memory());
  }
  return available;
}

}  // namespace winnow::train::cuda
