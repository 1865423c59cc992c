// Reductions and barriers for blocks that each handle a whole head.
#pragma once

#include <cstdint>

namespace winnow::kvcache::cuda {

inline constexpr int kScoreEvictionWarps = 16;
inline constexpr int kScoreEvictionThreads = kScoreEvictionWarps * 32;

/// combine() over the x of `lanes` neighbouring lanes; each of them gets the result.
template <class F>
__device__ float reduce_warp(float x, int lanes, const F& combine) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    x = combine(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
  }
  return x;
}

/// combine() over the x of the threads of a block of kScoreEvictionThreads, returned to each of
/// them.
template <class F>
__device__ float reduce_block(float x, const F& combine) {
  __shared__ float parts[kScoreEvictionWarps];
  x = reduce_warp(x, 32, combine);
  __syncthreads();  // all threads have read the result of an earlier call
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = x;
  }
  __syncthreads();
  x = parts[0];
  for (int warp = 1; warp < kScoreEvictionWarps; ++warp) {
    x = combine(x, parts[warp]);
  }
  return x;
}

inline __device__ float block_max(float x) {
  return reduce_block(x, [](float a, float b) { return fmaxf(a, b); });
}
inline __device__ float block_sum(float x) {
  return reduce_block(x, [](float a, float b) { return a + b; });
}

/// A barrier between blocks: waits until the blocks that share `arrived` have called it `all` times
/// in total. Their earlier writes are visible afterwards.
inline __device__ void meet(std::uint32_t* arrived, std::uint32_t all) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1U);
    while (static_cast<int>(*static_cast<volatile std::uint32_t*>(arrived) - all) < 0) {
    }
    __threadfence();
  }
  __syncthreads();
}

}  // namespace winnow::kvcache::cuda
