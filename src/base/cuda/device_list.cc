#include "base/device_list.h"

#include "base/cuda/device.h"
#include "base/error.h"

namespace winnow {
namespace {

DeviceInfo describe(int index) {
  cuda::use_device(index);
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "device properties");
  return {.name = properties.name,
          .compute_major = properties.major,
          .compute_minor = properties.minor,
          .total_memory = cuda::total_memory(),
          .free_memory = cuda::free_memory()};
}

}  // namespace

DeviceList list_devices() {
  DeviceList list;
  try {
    cuda::use_device(0);  // throws the reason if no device is usable
    for (int index = 0; index < cuda::device_count(); ++index) {
      list.devices.push_back(describe(index));
    }
  } catch (const Error& error) {
    list.problem = error.what();
  }
  return list;
}

int count_devices() {
  return cuda::device_count();
}

void require_device(int index) {
  cuda::use_device(index);
}

}  // namespace winnow
