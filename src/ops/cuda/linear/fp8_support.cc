#include "ops/cuda/linear/fp8_support.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/cuda/device.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::size_t kScalesRows = 120900;  // the first version with scales of rows

int attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  winnow::cuda::check(cudaGetDevice(&device), "current device");
  winnow::cuda::check(cudaDeviceGetAttribute(&value, which, device), "compute capability");
  return value;
}

}  // namespace

Fp8Support Fp8Support::here() {
  return {.major = attribute(cudaDevAttrComputeCapabilityMajor),
          .minor = attribute(cudaDevAttrComputeCapabilityMinor),
          .cublaslt = std::min<std::size_t>(CUBLAS_VERSION, cublasLtGetVersion())};
}

std::string Fp8Support::problem() const {
  if (major != 9) {  // scales of rows are Hopper's alone
    return fmt::format(
        "the device has compute capability {}.{}, products in fp8 need 9.0 (H100, H200)", major,
        minor);
  }
  if (cublaslt < kScalesRows) {
    return fmt::format("cuBLASLt has version {}.{}, products in fp8 need that of CUDA 12.9",
                       cublaslt / 10000, cublaslt / 100 % 100);
  }
  return {};
}

}  // namespace winnow::ops::cuda
