// What the threads of a block that takes a whole head agree on.
#pragma once

#include <cstdint>

namespace winnow::kvcache::cuda {

inline constexpr int kScoreEvictionWarps = 16;
inline constexpr int kScoreEvictionThreads = kScoreEvictionWarps * 32;

/// combine() over the x of `lanes` neighbouring lanes, in each of them.
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

  /// Of equals, the oldest.
  __device__ bool before(const Candidate& other) const {
    return score < other.score || (score == other.score && position < other.position);
  }
  __device__ Candidate shuffled(int step) const {
    return {__shfl_xor_sync(0xFFFFFFFFU, score, step), __shfl_xor_sync(0xFFFFFFFFU, position, step),
            __shfl_xor_sync(0xFFFFFFFFU, slot, step)};
  }
};

/// The candidate that is before() all others of a block's threads, in each of them.
inline __device__ Candidate first_of_block(Candidate x, Candidate (&places)[kScoreEvictionWarps]) {
  for (int step = 16; step > 0; step /= 2) {
    const Candidate other = x.shuffled(step);
    x = other.before(x) ? other : x;
  }
  __syncthreads();  // what an earlier call left has been read
  if (threadIdx.x % 32 == 0) {
    places[threadIdx.x / 32] = x;
  }
  __syncthreads();
  for (const Candidate& other : places) {
    x = other.before(x) ? other : x;
  }
  return x;
}

/// Waits until the blocks that share `arrived` have come here `all` times between them. What they
/// wrote before can be read afterwards.
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
