#include <cuda_bf16.h>

#include <algorithm>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/eight.cuh"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/cuda/recurrent/four.cuh"
#include "ops/cuda/recurrent/output_gates.h"
#include "ops/cuda/recurrent/recurrent_rows.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kGateThreads = 128;
constexpr int kGateFours = kMostRecurrentDim / (4 * kLanes);  // per lane
constexpr unsigned kMostGateBlocks = 4096;                    // blocks loop over further work

__device__ float silu_of(float x) {
  return x * sigmoid(x);
}

__device__ void store_rounded(bf16* to, const float4& x) {
  const auto pair = [](float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
  };
  *reinterpret_cast<uint2*>(to) = {pair(x.x, x.y), pair(x.z, x.w)};
}

// By a warp: the channels of one head of one row, from `first` on.
__device__ void norm_head(bf16* out, const float* x, const GatedHeads& shape, const float* weight,
                          float eps, std::size_t first) {
  const auto place = [&](int i) { return 4 * static_cast<int>(threadIdx.x % kLanes + i * kLanes); };
  float4 own[kGateFours];
  float squares = 0.0F;
#pragma unroll
  for (int i = 0; i < kGateFours; ++i) {
    own[i] = place(i) < shape.dim ? load_four(x + first + place(i)) : float4{};
    squares += dot(own[i], own[i]);
  }
  const float factor = rsqrtf(lane_sum(squares) / static_cast<float>(shape.dim) + eps);
#pragma unroll
  for (int i = 0; i < kGateFours; ++i) {
    if (place(i) < shape.dim) {
      const float4 gate = load_four(shape.gates + first + place(i));
      const float4 w = load_four(weight + place(i));
      store_rounded(
          out + first + place(i),
          {silu_of(gate.x) * own[i].x * factor * w.x, silu_of(gate.y) * own[i].y * factor * w.y,
           silu_of(gate.z) * own[i].z * factor * w.z, silu_of(gate.w) * own[i].w * factor * w.w});
    }
  }
}

__global__ void __launch_bounds__(kGateThreads)
    gated_norm_kernel(bf16* out, const float* x, GatedHeads shape, const float* weight, float eps) {
  winnow::cuda::wait_for_predecessor();
  constexpr int kWarps = kGateThreads / kLanes;
  const std::size_t heads = static_cast<std::size_t>(shape.rows) * shape.heads;
  for (std::size_t head = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; head < heads;
       head += std::size_t{gridDim.x} * kWarps) {
    norm_head(out, x, shape, weight, eps, head * shape.dim);
  }
}

// By a block: a group of channels of one row.
__global__ void __launch_bounds__(kGateThreads)
    norm_gated_kernel(bf16* out, const float* x, GatedHeads shape, const float* weight, float eps) {
  __shared__ float sums[kGateThreads / kLanes];
  winnow::cuda::wait_for_predecessor();
  const std::size_t groups = static_cast<std::size_t>(shape.rows) * shape.heads;
  for (std::size_t group = blockIdx.x; group < groups; group += gridDim.x) {
    const std::size_t first = group * shape.dim;
    const float* weights = weight + group % shape.heads * shape.dim;
    float squares = 0.0F;
    for (int i = threadIdx.x; i < shape.dim; i += kGateThreads) {
      const float gated = silu_of(shape.gates[first + i]) * x[first + i];
      squares += gated * gated;
    }
    squares = lane_sum(squares);
    if (threadIdx.x % kLanes == 0) {
      sums[threadIdx.x / kLanes] = squares;
    }
    __syncthreads();
    float sum = 0.0F;
    for (const float part : sums) {
      sum += part;
    }
    const float factor = rsqrtf(sum / static_cast<float>(shape.dim) + eps);
    for (int i = threadIdx.x; i < shape.dim; i += kGateThreads) {
      const float gated = silu_of(shape.gates[first + i]) * x[first + i];
      out[first + i] = to_bf16(gated * factor * weights[i]);
    }
    __syncthreads();  // before the next group's sums replace these
  }
}

__global__ void __launch_bounds__(kGateThreads)
    sigmoid_multiply_kernel(bf16* x, GatedHeads shape, const float* bias) {
  winnow::cuda::wait_for_predecessor();
  const int width = shape.heads * shape.dim;
  const std::size_t eights = static_cast<std::size_t>(shape.rows) * width / 8;
  for (std::size_t i = std::size_t{blockIdx.x} * kGateThreads + threadIdx.x; i < eights;
       i += std::size_t{gridDim.x} * kGateThreads) {
    Eight values = load_eight(x + 8 * i);
    const Eight gates = load_eight(shape.gates + 8 * i);
    const Eight biases = bias != nullptr ? load_eight(bias + 8 * i % width) : Eight{};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      values.values[j] *= sigmoid(gates.values[j] + biases.values[j]);
    }
    store_eight(x + 8 * i, values);
  }
}

unsigned blocks_for(std::size_t count, std::size_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

}  // namespace

void gated_rms_norm(bf16* out, const float* x, const GatedHeads& shape, const float* weight,
                    float eps, cudaStream_t stream) {
  const std::size_t heads = static_cast<std::size_t>(shape.rows) * shape.heads;
  if (heads > 0) {
    winnow::cuda::launch(gated_norm_kernel,
                         std::min(blocks_for(heads, kGateThreads / kLanes), kMostGateBlocks),
                         kGateThreads, 0, stream, true, out, x, shape, weight, eps);
  }
}

void norm_gated(bf16* out, const float* x, const GatedHeads& shape, const float* weight, float eps,
                cudaStream_t stream) {
  const std::size_t groups = static_cast<std::size_t>(shape.rows) * shape.heads;
  if (groups > 0) {
    winnow::cuda::launch(norm_gated_kernel, std::min(blocks_for(groups, 1), kMostGateBlocks),
                         kGateThreads, 0, stream, true, out, x, shape, weight, eps);
  }
}

void sigmoid_multiply(bf16* x, const GatedHeads& shape, const float* bias, cudaStream_t stream) {
  const std::size_t eights = static_cast<std::size_t>(shape.rows) * shape.heads * shape.dim / 8;
  if (eights > 0) {
    winnow::cuda::launch(sigmoid_multiply_kernel,
                         std::min(blocks_for(eights, kGateThreads), kMostGateBlocks), kGateThreads,
                         0, stream, true, x, shape, bias);
  }
}

}  // namespace winnow::ops::cuda
