// Replaces cuda/ in builds without CUDA.
#include "base/device_list.h"

namespace winnow {

DeviceList list_devices() {
  return {.devices = {}, .problem = "this build has no device code (make build WINNOW_CUDA=ON)"};
}

}  // namespace winnow
