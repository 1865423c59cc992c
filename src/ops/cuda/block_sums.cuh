// Sums and maxima over lanes and blocks.
#pragma once

namespace winnow::ops::cuda {

inline constexpr int kLanes = 32;

/// The sum over each group of `Width` neighbouring lanes, returned to all of its lanes.
template <int Width = kLanes>
__device__ float lane_sum(float x) {
#pragma unroll
  for (int step = Width / 2; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  return x;
}

/// The sum over a block of `Threads` threads, returned to all of them. Every thread must call it.
template <int Threads>
__device__ float2 block_sums(float2 x) {
  __shared__ float2 sums[Threads / kLanes];
  x = {lane_sum(x.x), lane_sum(x.y)};
  __syncthreads();  // wait for readers of the previous call's sums
  if (threadIdx.x % kLanes == 0) {
    sums[threadIdx.x / kLanes] = x;
  }
  __syncthreads();
  float2 total{};
#pragma unroll
  for (int i = 0; i < Threads / kLanes; ++i) {
    total = {total.x + sums[i].x, total.y + sums[i].y};
  }
  return total;
}

template <int Threads>
__device__ float block_sum(float x) {
  return block_sums<Threads>({x, 0.0F}).x;
}

}  // namespace winnow::ops::cuda
