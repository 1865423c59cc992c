#include "cuda/read_bandwidth.h"

#include "base/cuda/device.h"

namespace winnow {
namespace {

__global__ void read_all(const uint4* from, std::size_t count, unsigned* out) {
  unsigned sum = 0;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += 4 * step) {
    uint4 x[4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (i + k * step < count) {
        x[k] = __ldg(from + i + k * step);
      }
    }
#pragma unroll
    for (const uint4& y : x) {
      sum += y.x ^ y.y ^ y.z ^ y.w;
    }
  }
  if (sum == 1) {
    *out = sum;
  }
}

}  // namespace

void launch_read(std::span<const std::byte> memory, unsigned* out, cudaStream_t stream) {
  read_all<<<cuda::multiprocessor_count() * 4, 512, 0, stream>>>(
      reinterpret_cast<const uint4*>(memory.data()), memory.size() / sizeof(uint4), out);
  cuda::check_launch("read");
}

}  // namespace winnow
