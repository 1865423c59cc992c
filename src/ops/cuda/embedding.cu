#include "base/cuda/device.h"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/embedding.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    embed_kernel(float* out, const bf16* table, const std::int32_t* tokens, int cols) {
  const std::size_t to = std::size_t{blockIdx.x} * cols;
  const std::size_t from = static_cast<std::size_t>(tokens[blockIdx.x]) * cols;
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    store_eight(out + to + col, load_eight(table + from + col));
  }
}

__global__ void __launch_bounds__(kThreads)
    embed_backward_kernel(float* dtable, const float* dout, const std::int32_t* tokens, int cols) {
  const std::size_t from = std::size_t{blockIdx.x} * cols;
  const std::size_t to = static_cast<std::size_t>(tokens[blockIdx.x]) * cols;
  for (int col = threadIdx.x; col < cols; col += kThreads) {
    atomicAdd(dtable + to + col, dout[from + col]);
  }
}

}  // namespace

void embed(float* out, const bf16* table, const std::int32_t* tokens, int rows, int cols,
           cudaStream_t stream) {
  embed_kernel<<<rows, kThreads, 0, stream>>>(out, table, tokens, cols);
  winnow::cuda::check_launch("embedding");
}

void embed_backward(float* dtable, const float* dout, const std::int32_t* tokens, int rows,
                    int cols, cudaStream_t stream) {
  embed_backward_kernel<<<rows, kThreads, 0, stream>>>(dtable, dout, tokens, cols);
  winnow::cuda::check_launch("embedding, backward");
}

}  // namespace winnow::ops::cuda
