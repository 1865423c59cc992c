// The choice of an entry that leaves the cache, by a block.
#pragma once

#include <climits>
#include <cmath>

namespace winnow::kvcache::cuda {

/// An entry that may leave the cache.
struct Candidate {
  float score = INFINITY;
  int position = INT_MAX;
  int slot = -1;  // -1: there is none

  /// The lower score first, the older entry first among equals.
  __device__ bool before(const Candidate& other) const {
    return score < other.score || (score == other.score && position < other.position);
  }
  __device__ Candidate shuffled(int step) const {
    return {__shfl_xor_sync(0xFFFFFFFFU, score, step), __shfl_xor_sync(0xFFFFFFFFU, position, step),
            __shfl_xor_sync(0xFFFFFFFFU, slot, step)};
  }
};

/// The candidate that is before() all others of a block's threads, returned to each of them. The
/// block has whole warps.
inline __device__ Candidate first_of_block(Candidate x) {
  __shared__ float scores[32];
  __shared__ int positions[32];
  __shared__ int slots[32];
  for (int step = 16; step > 0; step /= 2) {
    const Candidate other = x.shuffled(step);
    x = other.before(x) ? other : x;
  }
  __syncthreads();  // all threads have read the result of an earlier call
  if (threadIdx.x % 32 == 0) {
    scores[threadIdx.x / 32] = x.score;
    positions[threadIdx.x / 32] = x.position;
    slots[threadIdx.x / 32] = x.slot;
  }
  __syncthreads();
  for (int warp = 0; warp < blockDim.x / 32; ++warp) {
    const Candidate other{scores[warp], positions[warp], slots[warp]};
    x = other.before(x) ? other : x;
  }
  return x;
}

}  // namespace winnow::kvcache::cuda
