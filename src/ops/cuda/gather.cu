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

__global__ void clear_kernel(float* out, std::size_t count) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) {
    out[i] = -INFINITY;
  }
}

__global__ void spread_kernel(float* out, int width, const float* from, int cols,
                              const std::int32_t* places) {
  const std::size_t row = blockIdx.y;
  const int col = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (col < cols) {
    out[row * width + places[col]] = from[row * cols + col];
  }
}

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
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

void spread_columns(float* out, int width, const float* from, int cols, const std::int32_t* places,
                    int rows, cudaStream_t stream) {
  if (rows > 0) {
    const std::size_t count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
    clear_kernel<<<blocks_for(count), kThreads, 0, stream>>>(out, count);
    const dim3 grid(blocks_for(static_cast<std::size_t>(cols)), static_cast<unsigned>(rows));
    spread_kernel<<<grid, kThreads, 0, stream>>>(out, width, from, cols, places);
    winnow::cuda::check_launch("spread columns");
  }
}

}  // namespace winnow::ops::cuda
