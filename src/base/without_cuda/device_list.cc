// Replaces cuda/ in builds without CUDA.
#include "base/device_list.h"

#include "base/error.h"

namespace winnow {

DeviceList list_devices() {
  return {.devices = {},
          .problem =
              "this build has no code for NVIDIA GPUs (if this machine has one, make build "
              "WINNOW_CUDA=ON adds it)"};
}

int count_devices() {
  return 0;
}

void require_device(int /*index*/) {
  fail("--device cuda: {}", list_devices().problem);
}

}  // namespace winnow
