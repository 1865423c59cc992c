#include "base/cuda/device.h"
#include "ops/cuda/gather.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void gather_kernel(uint4* out, const uint4* from, const std::int32_t* indices,
                              std::size_t width) {
  const std::size_t source = indices[blockIdx.x];
  for (std::size_t i = threadIdx.x; i < width; i += kThreads) {
    out[blockIdx.x * width + i] = from[source * width + i];
  }
}

}  // namespace

void gather_rows(void* out, const void* from, const std::int32_t* indices, int rows,
                 std::size_t row_bytes, cudaStream_t stream) {
  if (rows > 0) {
    gather_kernel<<<rows, kThreads, 0, stream>>>(static_cast<uint4*>(out),
                                                 static_cast<const uint4*>(from), indices,
                                                 row_bytes / sizeof(uint4));
    winnow::cuda::check_launch("gather rows");
  }
}

}  // namespace winnow::ops::cuda
