#include "base/cuda/read_bandwidth.h"

#include <algorithm>

#include "base/cuda/device.h"

namespace winnow::cuda {
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
  read_all<<<multiprocessor_count() * 4, 512, 0, stream>>>(
      reinterpret_cast<const uint4*>(memory.data()), memory.size() / sizeof(uint4), out);
  check_launch("read");
}

double measure_read_bandwidth() {
  constexpr int kPasses = 6;
  constexpr int kReads = 8;  // per pass: start and end dominate a single one
  DeviceBuffer<std::byte> memory(std::size_t{1} << 30);
  memory.fill(1);
  const DeviceBuffer<unsigned> out(1);
  const Stream stream;
  double best = 0.0;
  for (int pass = 0; pass < kPasses; ++pass) {
    Event begin;
    Event end;
    begin.record(stream);
    for (int read = 0; read < kReads; ++read) {
      launch_read({memory.data(), memory.size()}, out.data(), stream.get());
    }
    end.record(stream);
    const double seconds = end.milliseconds_since(begin) * 1e-3;
    best = std::max(best, static_cast<double>(kReads * memory.size()) / seconds);
  }
  return best;
}

}  // namespace winnow::cuda
