#include <cuda_bf16.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/norm.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpSize = 32;

// The sum of x over a block's threads, in each of them.
__device__ float block_sum(float x) {
  __shared__ float sums[kThreads / kWarpSize];
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  if (threadIdx.x % kWarpSize == 0) {
    sums[threadIdx.x / kWarpSize] = x;
  }
  __syncthreads();
  float total = 0.0F;
  for (const float sum : sums) {
    total += sum;
  }
  return total;
}

// One block per row, which stays in the first-level cache between the two passes.
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(bf16* out, const float* x, int cols, const float* weight, float eps) {
  winnow::cuda::wait_for_predecessor();
  const std::size_t row = blockIdx.x;
  const auto* from = reinterpret_cast<const float4*>(x + row * cols);
  float squares = 0.0F;
  for (int i = threadIdx.x; i < cols / 4; i += kThreads) {
    const float4 v = from[i];
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  const float factor = rsqrtf(block_sum(squares) / static_cast<float>(cols) + eps);
  auto* to = reinterpret_cast<__nv_bfloat162*>(out + row * cols);
  for (int i = threadIdx.x; i < cols / 4; i += kThreads) {
    const float4 v = from[i];
    const float4 w = reinterpret_cast<const float4*>(weight)[i];
    to[2 * i] = __floats2bfloat162_rn(v.x * factor * w.x, v.y * factor * w.y);
    to[2 * i + 1] = __floats2bfloat162_rn(v.z * factor * w.z, v.w * factor * w.w);
  }
}

__global__ void __launch_bounds__(kThreads) add_bias_kernel(float* x, int cols, const float* bias) {
  winnow::cuda::wait_for_predecessor();
  for (int i = threadIdx.x; i < cols; i += kThreads) {
    x[std::size_t{blockIdx.x} * cols + i] += bias[i];
  }
}

}  // namespace

void rms_norm(bf16* out, const float* x, int rows, int cols, const float* weight, float eps,
              cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(rms_norm_kernel, rows, kThreads, 0, stream, true, out, x, cols, weight,
                         eps);
  }
}

void add_bias(float* x, int rows, int cols, const float* bias, cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(add_bias_kernel, rows, kThreads, 0, stream, true, x, cols, bias);
  }
}

}  // namespace winnow::ops::cuda
