#include <cuda_bf16.h>

#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/training/training_norm.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;

// The value that is subtracted from this block's row.
template <class Number>
__device__ float mean_of(const Number* row, int cols, bool centers) {
  if (!centers) {
    return 0.0F;
  }
  float sum = 0.0F;
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    const Eight v = load_eight(row + col);
#pragma unroll
    for (const float value : v.values) {
      sum += value;
    }
  }
  return block_sum<kThreads>(sum) / static_cast<float>(cols);
}

template <class Number>
__device__ Eight load_centered(const Number* from, float mean) {
  Eight x = load_eight(from);
#pragma unroll
  for (float& value : x.values) {
    value -= mean;
  }
  return x;
}

__global__ void __launch_bounds__(kThreads)
    norm_kernel(bf16* out, const float* x, int cols, TrainingNorm norm, int place, int* first_bad) {
  const std::size_t first = std::size_t{blockIdx.x} * cols;
  const float mean = mean_of(x + first, cols, norm.centers);
  float squares = 0.0F;
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    const Eight v = load_centered(x + first + col, mean);
#pragma unroll
    for (const float value : v.values) {
      squares += value * value;
    }
  }
  squares = block_sum<kThreads>(squares);
  if (first_bad != nullptr && threadIdx.x == 0 && !isfinite(squares)) {
    atomicMin(first_bad, place);
  }
  const float factor = rsqrtf(squares / static_cast<float>(cols) + norm.eps);
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    Eight v = load_centered(x + first + col, mean);
    const Eight w = load_eight(norm.weight + col);
    const Eight bias = norm.bias != nullptr ? load_eight(norm.bias + col) : Eight{};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v.values[i] = v.values[i] * (factor * (norm.offset + w.values[i])) + bias.values[i];
    }
    store_eight(out + first + col, v);
  }
}

// With w = offset + weight, and r = 1 / root mean square of x, which is centred if
// the norm centers: dx_i = r (w_i g_i - m - x_i r^2 / cols * sum_j x_j w_j g_j), m = mean(w g) or,
// without centring, 0. A block processes many rows and adds up the gradient of the weight in shared
// memory, where each thread has its own columns.
template <class Gradient, class Number>
__global__ void __launch_bounds__(kThreads)
    norm_backward_kernel(NormGradients gradients, const Gradient* dout, const Number* x, int rows,
                         int cols, TrainingNorm norm) {
  extern __shared__ float dweight[];  // [cols]
  const bool adds = gradients.add && gradients.x != nullptr;
  for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
    store_eight(dweight + col, Eight{});
  }
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::size_t first = static_cast<std::size_t>(row) * cols;
    const float mean = mean_of(x + first, cols, norm.centers);
    float squares = 0.0F;
    float product = 0.0F;
    float sum = 0.0F;
    for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
      const Eight v = load_centered(x + first + col, mean);
      const Eight g = load_eight(dout + first + col);
      const Eight w = load_eight(norm.weight + col);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float weighted = (norm.offset + w.values[i]) * g.values[i];
        squares += v.values[i] * v.values[i];
        product += v.values[i] * weighted;
        sum += weighted;
      }
    }
    const float2 sums = block_sums<kThreads>({squares, product});
    const float shift = norm.centers ? block_sum<kThreads>(sum) / static_cast<float>(cols) : 0.0F;
    const float factor = rsqrtf(sums.x / static_cast<float>(cols) + norm.eps);
    const float along = sums.y * factor * factor / static_cast<float>(cols);
    const float scaled = gradients.multiplier * factor;
    for (int col = threadIdx.x * 8; col < cols; col += kThreads * 8) {
      const Eight v = load_centered(x + first + col, mean);
      const Eight g = load_eight(dout + first + col);
      const Eight w = load_eight(norm.weight + col);
      Eight dx = adds ? load_eight(gradients.x + first + col) : Eight{};
      Eight dw = load_eight(dweight + col);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        dx.values[i] +=
            scaled * ((norm.offset + w.values[i]) * g.values[i] - shift - v.values[i] * along);
        dw.values[i] += g.values[i] * v.values[i] * scaled;
      }
      store_eight(dweight + col, dw);
      if (gradients.x != nullptr) {
        store_eight(gradients.x + first + col, dx);
      }
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
                  int cols, const TrainingNorm& norm, cudaStream_t stream) {
  constexpr int kBlocksPerProcessor = 6;
  static const int processors = winnow::cuda::multiprocessor_count();
  const int blocks = std::min(rows, kBlocksPerProcessor * processors);
  norm_backward_kernel<Gradient, Number>
      <<<blocks, kThreads, cols * sizeof(float), stream>>>(gradients, dout, x, rows, cols, norm);
  winnow::cuda::check_launch("a norm, backward");
}

}  // namespace

void norm_rows(bf16* out, const float* x, int rows, int cols, const TrainingNorm& norm, int place,
               int* first_bad, cudaStream_t stream) {
  norm_kernel<<<rows, kThreads, 0, stream>>>(out, x, cols, norm, place, first_bad);
  winnow::cuda::check_launch("a norm");
}

void norm_rows_backward(const NormGradients& gradients, const bf16* dout, const float* x, int rows,
                        int cols, const TrainingNorm& norm, cudaStream_t stream) {
  run_backward(gradients, dout, x, rows, cols, norm, stream);
}
void norm_rows_backward(const NormGradients& gradients, const float* dout, const bf16* x, int rows,
                        int cols, const TrainingNorm& norm, cudaStream_t stream) {
  run_backward(gradients, dout, x, rows, cols, norm, stream);
}

}  // namespace winnow::ops::cuda
