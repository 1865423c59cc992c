// The CUDA devices of this machine, for programs that may have been built without CUDA.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace winnow {

struct DeviceInfo {
  std::string name;
  int compute_major = 0;  // compute capability: 9.0 is Hopper
  int compute_minor = 0;
  std::size_t total_memory = 0;  // bytes
  std::size_t free_memory = 0;
};

struct DeviceList {
  std::vector<DeviceInfo> devices;
  std::string problem;  // why there are no devices; else empty
};

DeviceList list_devices();

/// How many there are. Unlike list_devices() it takes no memory of theirs.
int count_devices();

/// Throws Error if this device cannot be used. For commands that do long work before they use it.
void require_device(int index);

}  // namespace winnow
