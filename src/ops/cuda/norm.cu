#include "ops/cuda/norm.h"

#include "base/cuda/launch.cuh"
#include "ops/cuda/linear/fp8_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;

// The factor of a row's norm, returned to each of a block's threads.
__device__ float rms_factor(const float* x, int cols, float eps) {
  const auto* fours = reinterpret_cast<const float4*>(x);
  float squares = 0.0F;
  for (int i = threadIdx.x; i < cols / 4; i += kThreads) {
    const float4 v = fours[i];
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  return rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(cols) + eps);
}

// One block per row, which stays in the first-level cache between the two passes.
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(bf16* out, const float* x, int cols, const float* weight, float eps) {
  winnow::cuda::wait_for_predecessor();
  const std::size_t row = blockIdx.x;
  const float factor = rms_factor(x + row * cols, cols, eps);
  const auto* from = reinterpret_cast<const float4*>(x + row * cols);
  auto* to = reinterpret_cast<__nv_bfloat162*>(out + row * cols);
  for (int i = threadIdx.x; i < cols / 4; i += kThreads) {
    const float4 v = from[i];
    const float4 w = reinterpret_cast<const float4*>(weight)[i];
    to[2 * i] = __floats2bfloat162_rn(v.x * factor * w.x, v.y * factor * w.y);
    to[2 * i + 1] = __floats2bfloat162_rn(v.z * factor * w.z, v.w * factor * w.w);
  }
}

__global__ void __launch_bounds__(kThreads)
    rms_norm_codes_kernel(Fp8RowsTo out, const float* x, int cols, const float* weight, float eps) {
  static_assert(kThreads == kCodeThreads);
  winnow::cuda::wait_for_predecessor();
  const float* row = x + std::size_t{blockIdx.x} * cols;
  const float factor = rms_factor(row, cols, eps);
  write_codes<4>(out, cols, [&](int column) {
    Eight normed = load_eight(row + column);
    const Eight weights = load_eight(weight + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      normed.values[i] = normed.values[i] * factor * weights.values[i];
    }
    return normed;
  });
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

void rms_norm(const Fp8RowsTo& out, const float* x, int rows, int cols, const float* weight,
              float eps, cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(rms_norm_codes_kernel, rows, kThreads, 0, stream, true, out, x, cols,
                         weight, eps);
  }
}

void add_bias(float* x, int rows, int cols, const float* bias, cudaStream_t stream) {
  if (rows > 0) {
    winnow::cuda::launch(add_bias_kernel, rows, kThreads, 0, stream, true, x, cols, bias);
  }
}

}  // namespace winnow::ops::cuda
