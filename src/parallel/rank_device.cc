#include "parallel/rank_device.h"

#include "base/device_list.h"
#include "base/error.h"

namespace winnow::parallel {

int device_of_rank(int first, int rank, int ranks) {
  const auto launched = launched_as();
  return ranks == 1 || !launched ? first + rank
                                 : device_of_process(first, *launched, count_devices());
}

int device_of_process(int first, const LaunchedAs& launched, int shown) {
  const int device = shown == 1 ? 0 : first + launched.local_rank.value_or(launched.rank);
  require(device < shown, "rank {} of {} takes CUDA device {}, but its machine shows {}",
          launched.rank, launched.size, device, shown);
  return device;
}

}  // namespace winnow::parallel
