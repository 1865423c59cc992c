#include "ops/cuda/training/training_layer_inputs.h"

#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;

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

}  // namespace

void layer_inputs(const LayerInputRows& of, bf16* out, cudaStream_t stream) {
  constexpr std::size_t kMostBlocks = 4096;  // warps loop over further parts
  const std::size_t parts = static_cast<std::size_t>(of.rows) * static_cast<std::size_t>(of.layers);
  const std::size_t blocks = std::min((parts + kWarps - 1) / kWarps, kMostBlocks);
  winnow::cuda::launch(inputs_kernel, static_cast<unsigned>(blocks), kThreads, 0, stream, false, of,
                       out);
}

}  // namespace winnow::ops::cuda
