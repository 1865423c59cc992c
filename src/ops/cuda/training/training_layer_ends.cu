#include "ops/cuda/training/training_layer_ends.h"

#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/general/activation_curves.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;

/// body(i) for all of `count`, by all threads of the grid.
template <class Body>
__device__ void for_each(std::size_t count, const Body& body) {
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * kThreads) {
    body(i);
  }
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(float* x, std::size_t count, const float* factor) {
  for_each(count, [&](std::size_t i) { x[i] *= *factor; });
}

// A warp has a layer's part of a row.
__global__ void __launch_bounds__(kThreads)
    inputs_kernel(const __grid_constant__ LayerInputRows of, bf16* out) {
  const std::size_t parts = static_cast<std::size_t>(of.rows) * of.layers;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (std::size_t part = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; part < parts;
       part += std::size_t{gridDim.x} * kWarps) {
    const float* x = of.projected + part * of.width;
    float squares = 0.0F;
    for (int c = lane; c < of.width; c += kLanes) {
      squares += x[c] * x[c];
    }
    const float factor = rsqrtf(lane_sum(squares) / static_cast<float>(of.width) + of.eps);
    const std::size_t token = of.tokens[part / of.layers];
    const bf16* own = of.table + (token * of.layers + part % of.layers) * of.width;
    for (int c = lane; c < of.width; c += kLanes) {
      const float normed = factor * x[c] * (of.norm_offset + of.norm[c]);
      out[part * of.width + c] =
          to_bf16(of.scale * (normed + of.embedding_scale * to_float(own[c])));
    }
  }
}

template <Activation kKind>
__global__ void __launch_bounds__(kThreads)
    rows_backward_kernel(bf16* gates, bf16* product,
                         const __grid_constant__ FactorGradients factors, int rows, int cols) {
  for_each(static_cast<std::size_t>(rows) * cols, [&](std::size_t i) {
    const std::size_t at = i / cols * factors.stride + i % cols;
    const Curve curve = activation_at<kKind>(to_float(gates[i]));
    const float factor = to_float(factors.factors[at]);
    const float gradient = to_float(product[i]);
    factors.gradients[at] = gradient * curve.value;
    gates[i] = to_bf16(gradient * curve.slope * factor);
    product[i] = to_bf16(curve.value * factor);
  });
}

unsigned blocks_for(std::size_t count, std::size_t each) {
  constexpr std::size_t kMostBlocks = 4096;  // further work is taken in turn
  return static_cast<unsigned>(std::min((count + each - 1) / each, kMostBlocks));
}

}  // namespace

void scale_by(float* x, std::size_t count, const float* factor, cudaStream_t stream) {
  winnow::cuda::launch(scale_kernel, blocks_for(count, kThreads), kThreads, 0, stream, false, x,
                       count, factor);
}

void layer_inputs(const LayerInputRows& of, bf16* out, cudaStream_t stream) {
  const std::size_t parts = static_cast<std::size_t>(of.rows) * static_cast<std::size_t>(of.layers);
  winnow::cuda::launch(inputs_kernel, blocks_for(parts, kWarps), kThreads, 0, stream, false, of,
                       out);
}

void activate_multiply_rows_backward(Activation activation, bf16* gates, bf16* product,
                                     const FactorGradients& factors, int rows, int cols,
                                     cudaStream_t stream) {
  const auto launch = [&](auto* kernel) {
    const std::size_t count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    winnow::cuda::launch(kernel, blocks_for(count, kThreads), kThreads, 0, stream, false, gates,
                         product, factors, rows, cols);
  };
  switch (activation) {
    case Activation::silu:
      return launch(rows_backward_kernel<Activation::silu>);
    case Activation::gelu_tanh:
      return launch(rows_backward_kernel<Activation::gelu_tanh>);
    case Activation::gelu:
      return launch(rows_backward_kernel<Activation::gelu>);
    case Activation::relu_squared:
      return launch(rows_backward_kernel<Activation::relu_squared>);
  }
}

}  // namespace winnow::ops::cuda
