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
