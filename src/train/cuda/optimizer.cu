#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "train/cuda/optimizer.h"

namespace winnow::train::cuda {
namespace {

using ops::cuda::Eight;
using ops::cuda::load_eight;
using ops::cuda::store_eight;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    squares_kernel(double* sum, const float* x, std::size_t count) {
  float squares = 0.0F;
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count / 4; i += step) {
    const float4 v = reinterpret_cast<const float4*>(x)[i];
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  squares = ops::cuda::block_sum<kThreads>(squares);
  if (threadIdx.x == 0) {
    atomicAdd(sum, double{squares});
  }
}

__global__ void __launch_bounds__(kThreads)
    round_kernel(bf16* to, const float* from, std::size_t count) {
  const std::size_t i = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (i < count) {
    store_eight(to + i, load_eight(from + i));
  }
}

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ AdamWStep step, const __grid_constant__ AdamWArrays a) {
  const std::size_t i = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (i >= a.count) {
    return;
  }
  const Eight gradient = load_eight(a.gradients + i);
  Eight value = load_eight(a.values + i);
  Eight first = load_eight(a.first + i);
  Eight second = load_eight(a.second + i);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float g = gradient.values[j] * step.gradient_factor;
    float& m = first.values[j];
    float& v = second.values[j];
    m = step.beta1 * m + (1.0F - step.beta1) * g;
    v = step.beta2 * v + (1.0F - step.beta2) * g * g;
    value.values[j] =
        step.kept * value.values[j] - step.rate * m / (sqrtf(v) * step.correction + step.epsilon);
  }
  store_eight(a.values + i, value);
  store_eight(a.first + i, first);
  store_eight(a.second + i, second);
  if (a.rounded != nullptr) {
    store_eight(a.rounded + i, value);
  }
}

int blocks_of(std::size_t count) {
  return static_cast<int>((count / 8 + kThreads - 1) / kThreads);
}

}  // namespace

void add_squares(double* sum, const float* x, std::size_t count, cudaStream_t stream) {
  if (count > 0) {
    constexpr std::size_t kMostBlocks = 2048;
    const std::size_t blocks = std::min((count / 4 + kThreads - 1) / kThreads, kMostBlocks);
    squares_kernel<<<static_cast<int>(blocks), kThreads, 0, stream>>>(sum, x, count);
    winnow::cuda::check_launch("sum of squares");
  }
}

void round_values(bf16* to, const float* from, std::size_t count, cudaStream_t stream) {
  if (count > 0) {
    round_kernel<<<blocks_of(count), kThreads, 0, stream>>>(to, from, count);
    winnow::cuda::check_launch("rounding");
  }
}

void apply_adamw(const AdamWStep& step, const AdamWArrays& arrays, cudaStream_t stream) {
  if (arrays.count > 0) {
    adamw_kernel<<<blocks_of(arrays.count), kThreads, 0, stream>>>(step, arrays);
    winnow::cuda::check_launch("AdamW");
  }
}

}  // namespace winnow::train::cuda
