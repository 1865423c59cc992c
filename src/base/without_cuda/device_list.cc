// Replaces cuda/ in builds without CUDA.
#include "base/device_list.h"

namespace winnow {

DeviceList list_devices() {
  return {.devices = {},
          .problem = "this build has no code for NVIDIA GPUs (make build WINNOW_CUDA=ON adds it)"};
}

}  // namespace winnow
