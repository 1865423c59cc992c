// General decode attention: a warp per query head adds up its splits, the open entry and the sink.
#include "base/cuda/launch.cuh"
#include "ops/cuda/general/attention_tile.cuh"
#include "ops/cuda/general/decode_attention_kernels.h"
#include "ops/cuda/pages/head_vector.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  }
  return x;
}
__device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, step);
  }
  return x;
}

// Whether a split has no entries; then its output was never written.
__device__ bool is_empty(const float2& split) {
  return split.x == -INFINITY && split.y == 0.0F;
}

// The factor of a split in the sum; a NaN in its own sum remains.
__device__ float share_of(float logit, float largest) {
  return logit == -INFINITY ? 0.0F : exp2f(logit - largest);
}

// Lane l computes channels l, l + 32 ... of the sum of all splits; returns the divisor of the
// sum.
template <int kSteps>
__device__ float reduce_splits(const GeneralDecodeArguments& arguments, int query_row,
                               float (&out)[kSteps]) {
  const DecodeEntries& entries = arguments.entries;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int dim = arguments.head_dim;
  const int row = query_row / arguments.group;
  const float2* sums =
      arguments.partial_sums + static_cast<std::size_t>(query_row) * arguments.splits;
  const float* outs =
      arguments.partial_out + static_cast<std::size_t>(query_row) * arguments.splits * dim;
  const LogitRule logit(arguments.logits);
  const int heads = entries.kv_heads * arguments.group;
  const int slot = entries.slots[row / entries.kv_heads];
  const bool open = entries.open_scores != nullptr && slot >= 0;
  const bool sink = arguments.logits.sinks != nullptr && slot >= 0;
  const float open_logit = open ? logit(entries.open_scores[query_row]) : -INFINITY;
  const float sink_logit =
      sink ? arguments.logits.sinks[query_row % heads] * std::numbers::log2e_v<float> : -INFINITY;

  float largest = fmaxf(open_logit, sink_logit);
  for (int p = lane; p < arguments.splits; p += 32) {
    largest = fmaxf(largest, sums[p].x);
  }
  largest = warp_max(largest);
  float sum = 0.0F;
  for (int first = 0; first < arguments.splits; first += 32) {
    const float2 own =
        first + lane < arguments.splits ? sums[first + lane] : float2{-INFINITY, 0.0F};
    const float share = share_of(own.x, largest);
    sum += warp_sum(own.y * share);
    for (int p = 0; p < 32 && first + p < arguments.splits; ++p) {
      const float weight = __shfl_sync(kAllLanes, share, p);
      if (__shfl_sync(kAllLanes, is_empty(own) ? 1 : 0, p) != 0) {
        continue;
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (const int d = lane + 32 * i; d < dim) {
          out[i] += weight * outs[static_cast<std::size_t>(first + p) * dim + d];
        }
      }
    }
  }
  if (open) {
    const float weight = exp2f(open_logit - largest);
    const int table_heads = entries.table_heads > 0 ? entries.table_heads : entries.kv_heads;
    const std::size_t state_row =
        static_cast<std::size_t>(slot) * table_heads + row % entries.kv_heads;
    sum += weight;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (const int d = lane + 32 * i; d < dim) {
        out[i] += weight * entries.open_values[state_row * dim + d];
      }
    }
  }
  return sink ? sum + exp2f(sink_logit - largest) : sum;
}

__device__ void store(const GeneralDecodeArguments& arguments, std::size_t at, float x) {
  if (arguments.bf16_out) {
    static_cast<__nv_bfloat16*>(arguments.out)[at] = __float2bfloat16_rn(x);
  } else {
    static_cast<float*>(arguments.out)[at] = x;
  }
}

template <bool kRotated, int kSteps>
__global__ void __launch_bounds__(kWarps * 32)
    reduce_kernel(const __grid_constant__ GeneralDecodeArguments arguments) {
  __shared__ float rows[kWarps][kSteps * 32];
  winnow::cuda::wait_for_predecessor();
  winnow::cuda::release_successor();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int query_row = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (query_row >= arguments.batch * arguments.entries.kv_heads * arguments.group) {
    return;
  }
  const int dim = arguments.head_dim;
  float out[kSteps] = {};
  const float sum = reduce_splits(arguments, query_row, out);
  const float inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
  const std::size_t first = static_cast<std::size_t>(query_row) * dim;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (const int d = lane + 32 * i; d < dim) {
      if constexpr (kRotated) {
        rows[warp][d] = out[i] * inverse;
      } else {
        store(arguments, first + d, out[i] * inverse);
      }
    }
  }
  if constexpr (kRotated) {
    __syncwarp();
    HeadVector<0> vector{HeadDim<0>(dim)};
    vector.load(static_cast<const float*>(rows[warp]), nullptr);
    vector.rotate_back();
    if (arguments.bf16_out) {
      vector.store(static_cast<bf16*>(arguments.out) + first);
    } else {
      vector.store(static_cast<float*>(arguments.out) + first);
    }
  }
}

}  // namespace

void launch_general_decode_reduce(EntryFormat format, const GeneralDecodeArguments& arguments,
                                  cudaStream_t stream) {
  const int rows = arguments.batch * arguments.entries.kv_heads * arguments.group;
  with_channel_steps(arguments.head_dim, [&]<int kSteps>() {
    const auto kernel =
        format == EntryFormat::q4 ? reduce_kernel<true, kSteps> : reduce_kernel<false, kSteps>;
    winnow::cuda::launch(kernel, (rows + kWarps - 1) / kWarps, kWarps * 32, 0, stream, true,
                         arguments);
  });
}

}  // namespace winnow::ops::cuda
