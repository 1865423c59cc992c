// What all code for a CUDA device needs: errors, memory, streams, events. Does not include fmt,
// whose format strings nvcc's front end cannot evaluate.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace winnow::cuda {

/// Throws Error, which names `what`, unless `code` is success.
void check(cudaError_t code, std::string_view what);

/// check() for the kernel that was just launched.
void check_launch(std::string_view kernel);

/// Throws Error, which names the kernel, unless `code`, from launching it, is success.
void check_launch(cudaError_t code, const void* kernel);

/// The number of usable devices; 0 also if there is no driver or it is too old.
int device_count();

int multiprocessor_count();

/// The nominal floating-point operations per second of the current device, for dense products in
/// bf16; 0 if unknown.
double nominal_bf16_flops();

/// Makes device `index` the current one of this thread. Throws Error if there is no such device;
/// the message says how many there are.
void use_device(int index);

/// The same for a device that has been used before. Each thread must call it before it uses the
/// device, because each has a current device of its own.
void select_device(int index);

/// Bytes of device memory that are free now, and of all device memory.
std::size_t free_memory();
std::size_t total_memory();

/// Allows a kernel all of a block's shared memory; returns how much of it is dynamic.
int allow_most_shared_memory(const void* kernel);

/// Bytes of shared memory that a block can have.
int most_shared_memory();

/// Whether kernels may begin before their predecessor is complete (Hopper and later).
bool has_programmatic_launch();

/// Device memory, freed with its owner. Throws Error that names the bytes wanted and free.
struct FreeDeviceMemory {
  void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, FreeDeviceMemory>;
DeviceMemory allocate(std::size_t bytes);

struct FreePinnedMemory {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};
using PinnedMemory = std::unique_ptr<void, FreePinnedMemory>;
PinnedMemory allocate_pinned(std::size_t bytes);

/// Functions without a stream are not ordered with our streams: copies from the host and fills may
/// still be running when they return. This waits for them.
void wait_for_default_stream();

/// `size` elements of device memory, uninitialised.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t size) : memory_(allocate(size * sizeof(T))), size_(size) {}
  /// A copy of `source`.
  explicit DeviceBuffer(std::span<const T> source) : DeviceBuffer(source.size()) {
    check(cudaMemcpy(data(), source.data(), source.size_bytes(), cudaMemcpyHostToDevice),
          "copy to the device");
    wait_for_default_stream();
  }

  [[nodiscard]] T* data() const { return static_cast<T*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const { return size_; }

  /// Copies the first elements to `target`, after all work on the default stream.
  void read(std::span<T> target) const {
    check(cudaMemcpy(target.data(), data(), target.size_bytes(), cudaMemcpyDeviceToHost),
          "copy from the device");
  }
  /// Makes room for at least `size` elements; the contents may be lost.
  void ensure(std::size_t size) {
    if (size > size_) {
      *this = DeviceBuffer();  // free the old memory before allocating more
      *this = DeviceBuffer(size);
    }
  }
  /// Sets every byte.
  void fill(int byte) {
    check(cudaMemset(data(), byte, size_ * sizeof(T)), "fill");
    wait_for_default_stream();
  }

 private:
  DeviceMemory memory_;
  std::size_t size_ = 0;
};

/// `size` elements of page-locked host memory, which a device copies at full speed and
/// asynchronously.
template <class T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t size)
      : memory_(allocate_pinned(size * sizeof(T))), size_(size) {}

  [[nodiscard]] T* data() const { return static_cast<T*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<T> span() const { return {data(), size_}; }

 private:
  PinnedMemory memory_;
  std::size_t size_ = 0;
};

class Stream {
 public:
  Stream();
  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }
  void synchronize() const { check(cudaStreamSynchronize(get()), "wait for a stream"); }

 private:
  struct Destroy {
    using pointer = cudaStream_t;
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<cudaStream_t, Destroy> stream_;
};

/// A point in a stream whose time can be read.
class Event {
 public:
  Event();
  void record(const Stream& stream) { record(stream.get()); }
  void record(cudaStream_t stream);
  /// Later work in `stream` waits for this event.
  void hold(const Stream& stream) const;
  void wait() const { check(cudaEventSynchronize(event_.get()), "wait for an event"); }
  /// Waits for this event and returns the time since `earlier`.
  [[nodiscard]] double milliseconds_since(const Event& earlier) const;

 private:
  struct Destroy {
    using pointer = cudaEvent_t;
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<cudaEvent_t, Destroy> event_;
};

}  // namespace winnow::cuda
