// Copies and fills in a stream.
#pragma once

#include "base/cuda/device.h"

namespace winnow::train::cuda {

template <class T>
void copy_async(const winnow::cuda::DeviceBuffer<T>& to, const winnow::cuda::PinnedBuffer<T>& from,
                cudaStream_t stream) {
  winnow::cuda::check(cudaMemcpyAsync(to.data(), from.data(), to.size() * sizeof(T),
                                      cudaMemcpyHostToDevice, stream),
                      "copy to the device");
}

template <class T>
void copy_async(const winnow::cuda::PinnedBuffer<T>& to, const winnow::cuda::DeviceBuffer<T>& from,
                cudaStream_t stream) {
  winnow::cuda::check(cudaMemcpyAsync(to.data(), from.data(), from.size() * sizeof(T),
                                      cudaMemcpyDeviceToHost, stream),
                      "copy from the device");
}

/// Copies within a device, or from one that shows its memory.
template <class T>
void copy_async(T* to, const T* from, std::size_t count, cudaStream_t stream) {
  winnow::cuda::check(
      cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToDevice, stream),
      "copy on the device");
}

/// Copies from pageable host memory, after all work on the default stream, and waits for it.
inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  winnow::cuda::check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
  winnow::cuda::wait_for_default_stream();
}

/// Sets every byte to 0.
template <class T>
void clear_async(const winnow::cuda::DeviceBuffer<T>& buffer, cudaStream_t stream) {
  winnow::cuda::check(cudaMemsetAsync(buffer.data(), 0, buffer.size() * sizeof(T), stream), "fill");
}

}  // namespace winnow::train::cuda
