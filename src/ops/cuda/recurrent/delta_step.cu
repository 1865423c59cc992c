// One token of each sequence. The states are read and written once: these 8 value_heads * key_dim *
// value_dim bytes per sequence and layer dominate. At the device's bandwidth they
// are a lower bound of the kernel's time.
//
// A block holds 32 columns of a head's matrix in registers, a thread four of them in every 16th
// row. With m = S^T k and n = S^T q of the state before the token, the output is decay n + (k . q)
// u, where u = rate (v - decay m), and the state becomes decay S + k u^T. Without correction u =
// rate v.
#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/recurrent/delta_rule_kernels.h"
#include "ops/cuda/recurrent/four.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kStepThreads = 128;
constexpr int kQuads = 8;                          // of columns: 128 bytes of each row
constexpr int kRowGroups = kStepThreads / kQuads;  // rows that the block reads at once
constexpr int kStepWarps = kStepThreads / kLanes;

// A thread's columns of m and n, summed over all rows, returned to each thread of the block.
__device__ void sum_over_rows(float4& m, float4& n) {
  __shared__ float4 sums[2][kStepWarps][kQuads];
  const auto over_warp = [](float4& x) {
#pragma unroll
    for (int step = kQuads; step < kLanes; step *= 2) {
      x = x +
          float4{__shfl_xor_sync(0xFFFFFFFFU, x.x, step), __shfl_xor_sync(0xFFFFFFFFU, x.y, step),
                 __shfl_xor_sync(0xFFFFFFFFU, x.z, step), __shfl_xor_sync(0xFFFFFFFFU, x.w, step)};
    }
  };
  over_warp(m);
  over_warp(n);
  const int quad = threadIdx.x % kQuads;
  if (threadIdx.x % kLanes < kQuads) {
    sums[0][threadIdx.x / kLanes][quad] = m;
    sums[1][threadIdx.x / kLanes][quad] = n;
  }
  __syncthreads();
  m = {};
  n = {};
#pragma unroll
  for (int warp = 0; warp < kStepWarps; ++warp) {
    m = m + sums[0][warp][quad];
    n = n + sums[1][warp][quad];
  }
}

// kRows: per thread, at least.
template <int kRows>
__global__ void __launch_bounds__(kStepThreads)
    delta_step_kernel(DeltaRuleShape heads, DeltaRule rule, RecurrentRows rows) {
  constexpr int kMostKeyDim = kRows * kRowGroups;
  __shared__ float keys[kMostKeyDim];
  __shared__ float queries[kMostKeyDim];
  const int row = blockIdx.z;
  const int head = blockIdx.y;
  const int slot = rows.slots[row];
  if (slot < 0) {
    winnow::cuda::wait_for_predecessor();
    return;
  }
  const int group = threadIdx.x / kQuads;
  const int column = 4 * (blockIdx.x * kQuads + threadIdx.x % kQuads);
  const bool has_columns = column < heads.value_dim;
  const auto has = [&](int i) { return has_columns && i < heads.key_dim; };
  float* state = rows.state(slot) + static_cast<std::size_t>(head) * matrix_of(heads) + column;
  float4 s[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {  // kernels that may still run do not write matrices
    const int i = group + r * kRowGroups;
    s[r] = has(i) ? load_four(state + i * heads.value_dim) : float4{};
  }

  winnow::cuda::wait_for_predecessor();
  const float* mixed = rule.mixed + static_cast<std::size_t>(row) * channels_of(heads);
  const float* gates = rule.gates + static_cast<std::size_t>(row) * rule.gate_stride;
  const int key_head = head / (heads.value_heads / heads.key_heads);
  for (int i = threadIdx.x; i < kMostKeyDim; i += kStepThreads) {
    const bool exists = i < heads.key_dim;
    const float* query = mixed + key_head * heads.key_dim;
    queries[i] = exists ? query[i] : 0.0F;
    keys[i] = exists ? query[keys_of(heads) + i] : 0.0F;
  }
  __syncthreads();
  float match = 0.0F;  // computed by each warp
  for (int i = threadIdx.x % kLanes; i < kMostKeyDim; i += kLanes) {
    match += keys[i] * queries[i];
  }
  match = lane_sum(match);
  float4 m{};
  float4 n{};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    add_scaled(m, s[r], keys[group + r * kRowGroups]);
    add_scaled(n, s[r], queries[group + r * kRowGroups]);
  }
  sum_over_rows(m, n);
  if (!has_columns) {
    return;
  }
  const float rate = gates[head];
  const float decay = gates[heads.value_heads + head];
  const float4 value = load_four(mixed + 2 * keys_of(heads) + head * heads.value_dim + column);
  const float4 update = (heads.corrects ? value + m * -decay : value) * rate;
  if (group == 0) {
    float4 out = n * decay;
    if (rule.skip != nullptr) {
      add_scaled(out, value, rule.skip[head]);
    }
    add_scaled(out, update, match);
    store_four(rule.out + static_cast<std::size_t>(row) * values_of(heads) +
                   head * heads.value_dim + column,
               out);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (const int i = group + r * kRowGroups; has(i)) {
      float4 next = s[r] * decay;
      add_scaled(next, update, keys[i]);
      store_four(state + i * heads.value_dim, next);
    }
  }
}

}  // namespace

void launch_delta_step(const DeltaRuleShape& heads, const DeltaRule& rule,
                       const RecurrentRows& rows, cudaStream_t stream) {
  constexpr int kColumns = 4 * kQuads;
  const dim3 grid((heads.value_dim + kColumns - 1) / kColumns, heads.value_heads, rows.sequences);
  const auto launch = [&](auto* kernel) {
    winnow::cuda::launch(kernel, grid, kStepThreads, 0, stream, true, heads, rule, rows);
  };
  heads.key_dim <= 8 * kRowGroups ? launch(delta_step_kernel<8>)
                                  : launch(delta_step_kernel<kMostRecurrentDim / kRowGroups>);
}

}  // namespace winnow::ops::cuda
