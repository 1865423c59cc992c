#include <cuda_bf16.h>

#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/training/training_norm.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    norm_kernel(bf16* out, const float* x, int cols, const float* weight, float offset, float eps,
                int place, int* first_bad) {
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  float squares = 0.0F;
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    const Eight v = load_eight(x + first + col);
#pragma unroll
    for (const float value : v.values) {
      squares += value * value;
    }
  }
  squares = block_sum<kThreads>(squares);
  if (first_bad != nullptr && threadIdx.x == 0 && !isfinite(squares)) {
    atomicMin(first_bad, place);
  }
  const float factor = rsqrtf(squares / static_cast<float>(cols) + eps);
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    Eight v = load_eight(x + first + col);
    const Eight w = load_eight(weight + col);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v.values[i] *= factor * (offset + w.values[i]);
    }
    store_eight(out + first + col, v);
  }
}

// With w = offset + weight: dx_i = r (w_i g_i - x_i r^2 / cols * sum_j x_j w_j g_j) with r = 1 /
// rms. A block takes many rows and adds up the gradient of the weight in shared memory, where each
// thread has columns of its own.
template <class Gradient, class Number>
__global__ void __launch_bounds__(kThreads)
    norm_backward_kernel(NormGradients gradients, const Gradient* dout, const Number* x, int rows,
                         int cols, const float* weight, float offset, float eps) {
  extern __shared__ float dweight[];  // [cols]
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    store_eight(dweight + col, Eight{});
  }
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::size_t first = static_cast<std::size_t>(row) * cols;
    float squares = 0.0F;
    float product = 0.0F;
    for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
      const Eight v = load_eight(x + first + col);
      const Eight g = load_eight(dout + first + col);
      const Eight w = load_eight(weight + col);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        squares += v.values[i] * v.values[i];
        product += v.values[i] * (offset + w.values[i]) * g.values[i];
      }
    }
    const float2 sums = block_sums<kThreads>({squares, product});
    const float factor = rsqrtf(sums.x / static_cast<float>(cols) + eps);
    const float along = sums.y * factor * factor / static_cast<float>(cols);
    const float scaled = gradients.multiplier * factor;
    for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
      const Eight v = load_eight(x + first + col);
      const Eight g = load_eight(dout + first + col);
      const Eight w = load_eight(weight + col);
      Eight dx = gradients.add ? load_eight(gradients.x + first + col) : Eight{};
      Eight dw = load_eight(dweight + col);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        dx.values[i] += scaled * ((offset + w.values[i]) * g.values[i] - v.values[i] * along);
        dw.values[i] += g.values[i] * v.values[i] * scaled;
      }
      store_eight(gradients.x + first + col, dx);
      store_eight(dweight + col, dw);
      if (gradients.rounded != nullptr) {
        store_eight(gradients.rounded + first + col, dx);
      }
    }
  }
  if (gradients.weight != nullptr) {
    for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
      for (int i = 0; i < 8; ++i) {
        atomicAdd(gradients.weight + col + i, dweight[col + i]);
      }
    }
  }
}

template <class Gradient, class Number>
void run_backward(const NormGradients& gradients, const Gradient* dout, const Number* x, int rows,
                  int cols, const float* weight, float offset, float eps, cudaStream_t stream) {
  constexpr int kBlocksPerProcessor = 6;
  static const int processors = winnow::cuda::multiprocessor_count();
  const int blocks = std::min(rows, kBlocksPerProcessor * processors);
  norm_backward_kernel<Gradient, Number><<<blocks, kThreads, cols * sizeof(float), stream>>>(
      gradients, dout, x, rows, cols, weight, offset, eps);
  winnow::cuda::check_launch("RMSNorm, backward");
}

}  // namespace

void rms_norm(bf16* out, const float* x, int rows, int cols, const float* weight, float eps,
              int place, int* first_bad, cudaStream_t stream, float offset) {
  norm_kernel<<<rows, kThreads, 0, stream>>>(out, x, cols, weight, offset, eps, place, first_bad);
  winnow::cuda::check_launch("RMSNorm");
}

void rms_norm_backward(const NormGradients& gradients, const bf16* dout, const float* x, int rows,
                       int cols, const float* weight, float eps, cudaStream_t stream,
                       float offset) {
  run_backward(gradients, dout, x, rows, cols, weight, offset, eps, stream);
}
void rms_norm_backward(const NormGradients& gradients, const float* dout, const bf16* x, int rows,
                       int cols, const float* weight, float eps, cudaStream_t stream,
                       float offset) {
  run_backward(gradients, dout, x, rows, cols, weight, offset, eps, stream);
}

}  // namespace winnow::ops::cuda
