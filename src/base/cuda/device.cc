#include "base/cuda/device.h"

#include "base/error.h"

namespace winnow::cuda {

void check(cudaError_t code, std::string_view what) {
  require(code == cudaSuccess, "CUDA: {}: {}", what, cudaGetErrorString(code));
}

void check_launch(std::string_view kernel) {
  check(cudaGetLastError(), kernel);
}

void check_launch(cudaError_t code, const void* kernel) {
  const char* name = "a kernel";
  if (code != cudaSuccess) {
    cudaFuncGetName(&name, kernel);  // keeps the name above when this fails as well
    check(code, name);
  }
}

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

namespace {

int attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "current device");
  check(cudaDeviceGetAttribute(&value, which, device), "device attribute");
  return value;
}

}  // namespace

int multiprocessor_count() {
  return attribute(cudaDevAttrMultiProcessorCount);
}

int allow_most_shared_memory(const void* kernel) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "attributes of a kernel");
  const int bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
                    static_cast<int>(attributes.sharedSizeBytes);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory of a kernel");
  return bytes;
}

bool has_programmatic_launch() {
  return attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

DeviceMemory allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes);
  if (code != cudaSuccess) {
    std::size_t free = 0;
    std::size_t total = 0;
    cudaMemGetInfo(&free, &total);  // zeros when this fails as well
    fail("CUDA: {} bytes of device memory wanted, {} of {} are free: {}", bytes, free, total,
         cudaGetErrorString(code));
  }
  return DeviceMemory(memory);
}

void use_device(int index) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  require(code == cudaSuccess, "no CUDA device can be used: {}", cudaGetErrorString(code));
  require(index < count, "there is no CUDA device {}: this machine has {}", index, count);
  check(cudaSetDevice(index), "choose a device");
}

std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for free memory");
  return free;
}

void wait_for_default_stream() {
  check(cudaStreamSynchronize(nullptr), "wait for the default stream");
}

PinnedMemory allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes), "allocate page-locked host memory");
  return PinnedMemory(memory);
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  stream_.reset(stream);
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "create an event");
  event_.reset(event);
}

void Event::record(const Stream& stream) {
  check(cudaEventRecord(event_.get(), stream.get()), "record an event");
}

double Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0.0F;
  check(cudaEventSynchronize(event_.get()), "wait for an event");
  check(cudaEventElapsedTime(&milliseconds, earlier.event_.get(), event_.get()), "time");
  return milliseconds;
}

}  // namespace winnow::cuda
