#include "parallel/rank_device.h"

#include "base/device_list.h"
#include "base/error.h"
#include "parallel/launched_as.h"

namespace winnow::parallel {

int device_of_rank(int first, int rank) {
  const auto launched = launched_as();
  if (!launched) {
    return first + rank;
  }
  const int shown = count_devices();
  const int device = shown == 1 ? 0 : first + launched->local_rank.value_or(launched->rank);
  require(device < shown, "rank {} of {} takes CUDA device {}, but its machine shows {}",
          launched->rank, launched->size, device, shown);
  return device;
}

}  // namespace winnow::parallel
