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

/// An entry that may leave the cache.
struct Candidate {
  float score;
  int position;
  int slot;

  /// The lower score first, the older entry first among equals.
  __device__ bool before(const Candidate& other) const {
    return score < other.score || (score == other.score && position < other.position);
  }
  __device__ Candidate shuffled(int step) const {
    return {__shfl_xor_sync(0xFFFFFFFFU, score, step), __shfl_xor_sync(0xFFFFFFFFU, position, step),
            __shfl_xor_sync(0xFFFFFFFFU, slot, step)};
  }
};

/// The candidate that is before() all others of a block's threads, returned to each of them.
inline __device__ Candidate first_of_block(Candidate x, Candidate (&places)[kScoreEvictionWarps]) {
  for (int step = 16; step > 0; step /= 2) {
    const Candidate other = x.shuffled(step);
    x = other.before(x) ? other : x;
  }
  __syncthreads();  // all threads have read the result of an earlier call
  if (threadIdx.x % 32 == 0) {
    places[threadIdx.x / 32] = x;
  }
  __syncthreads();
  for (const Candidate& other : places) {
    x = other.before(x) ? other : x;
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
