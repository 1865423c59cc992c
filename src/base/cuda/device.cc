#include "base/cuda/device.h"

#include <array>
#include <utility>

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

int most_shared_memory() {
  return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

int allow_most_shared_memory(const void* kernel) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "attributes of a kernel");
  const int bytes = most_shared_memory() - static_cast<int>(attributes.sharedSizeBytes);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory of a kernel");
  return bytes;
}

double nominal_bf16_flops() {
  // From data sheets: without sparsity, sums in float.
  constexpr std::array<std::pair<std::string_view, double>, 9> kKnown{{
      {"H100 PCIe", 756e12},
      {"H100", 989e12},
      {"H200", 989e12},
      {"B200", 2250e12},
      {"A100", 312e12},
      {"A10", 125e12},
      {"L40S", 362e12},
      {"RTX 4090", 165e12},
      {"RTX 5090", 209e12},
  }};
  int device = 0;
  check(cudaGetDevice(&device), "current device");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "device properties");
  const std::string_view name(properties.name);
  for (const auto& [part, flops] : kKnown) {
    if (name.find(part) != std::string_view::npos) {
      return flops;
    }
  }
  return 0.0;
}

bool has_programmatic_launch() {
  return attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

DeviceMemory allocate(std::size_t bytes) {
  if (bytes == 0) {
    return nullptr;
  }
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes);
  if (code != cudaSuccess) {
    cudaGetLastError();  // clears the error, which the next launch would report as its own
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
  if (code == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);  // stays 0 without a driver
    require(driver > 0, "no CUDA device can be used: this machine has no NVIDIA driver");
    fail("no CUDA device can be used: the driver knows CUDA {}.{}, this program needs {}.{}",
         driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }
  require(code == cudaSuccess, "no CUDA device can be used: {}", cudaGetErrorString(code));
  require(index < count, "there is no CUDA device {}: this machine has {}", index, count);
  select_device(index);
}

void select_device(int index) {
  check(cudaSetDevice(index), "choose a device");
}

std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for free memory");
  return free;
}

std::size_t total_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "ask for memory");
  return total;
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

void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_.get(), stream), "record an event");
}

void Event::hold(const Stream& stream) const {
  check(cudaStreamWaitEvent(stream.get(), event_.get()), "let a stream wait for an event");
}

double Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0.0F;
  wait();
  check(cudaEventElapsedTime(&milliseconds, earlier.event_.get(), event_.get()), "time");
  return milliseconds;
}

}  // namespace winnow::cuda
