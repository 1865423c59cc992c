// Training attention, backward: computes each query's data besides its vectors.
#include <numbers>

#include "base/cuda/launch.cuh"
#include "ops/cuda/pages/kv_codes.cuh"
#include "ops/cuda/training/training_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 8;  // per query and head, each with 16 bytes at a time

__device__ float dot_of(const uint4& a, const uint4& b) {
  const std::uint32_t x[4] = {a.x, a.y, a.z, a.w};
  const std::uint32_t y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += __uint_as_float(x[i] << 16) * __uint_as_float(y[i] << 16);
    sum += __uint_as_float(x[i] & 0xFFFF0000U) * __uint_as_float(y[i] & 0xFFFF0000U);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    query_sums_kernel(const __grid_constant__ TrainingBackward backward) {
  const int heads = backward.kv_heads * backward.attention.group;
  const int index =
      static_cast<int>(blockIdx.x) * (kThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
  const int token = index / heads;
  const int head = index % heads;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (token >= backward.padded_tokens) {
    return;  // padded_tokens is a multiple of a block's queries: whole warps return
  }
  float dot = 0.0F;
  float normalizer = INFINITY;
  if (token < backward.tokens) {
    const int dim = backward.attention.head_dim;
    const bf16* out = backward.out.data + token * backward.out.stride + head * dim;
    const bf16* dout = backward.dout.data + token * backward.dout.stride + head * dim;
    for (int channel = lane * 8; channel < dim; channel += kLanes * 8) {
      dot += dot_of(*reinterpret_cast<const uint4*>(out + channel),
                    *reinterpret_cast<const uint4*>(dout + channel));
    }
    normalizer = backward.normalizers.data[token * backward.normalizers.stride + head] *
                 std::numbers::log2e_v<float>;
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    dot += __shfl_xor_sync(0xFFFFFFFFU, dot, step);
  }
  if (lane == 0) {
    backward.sums[static_cast<std::size_t>(head) * backward.padded_tokens + token] = {normalizer,
                                                                                      dot};
  }
}

}  // namespace

void launch_query_sums(const TrainingBackward& backward, cudaStream_t stream) {
  static_assert(kTrainingRows % (kThreads / kLanes) == 0);
  const int rows = backward.padded_tokens * backward.kv_heads * backward.attention.group;
  winnow::cuda::launch(query_sums_kernel, rows / (kThreads / kLanes), kThreads, 0, stream, false,
                       backward);
}

}  // namespace winnow::ops::cuda
