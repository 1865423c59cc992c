// The experts that a token takes, chosen by a warp.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/router.h"

namespace winnow::ops::cuda {

/// The largest of a warp's values; of equal ones the one with the lowest index.
inline __device__ void warp_best(float& value, int& index) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(~0U, value, distance);
    const int place = __shfl_xor_sync(~0U, index, distance);
    if (other > value || (other == value && place < index)) {
      value = other;
      index = place;
    }
  }
}

/// A warp per token. `logits` [count] of its own are in shared memory; the chosen ones are taken
/// out.
inline __device__ void route_token(const Router& router, float* logits, std::int32_t* experts,
                                   float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float largest = -INFINITY;
  float of_chosen = 0.0F;
  float of_all = 0.0F;
  for (int k = 0; k < router.active; ++k) {
    float best = -INFINITY;
    int expert = router.count;
    for (int e = lane; e < router.count; e += 32) {
      if (logits[e] > best || (logits[e] == best && e < expert)) {
        best = logits[e];
        expert = e;
      }
    }
    warp_best(best, expert);
    expert = min(expert, router.count - 1);  // logits that are no numbers are not better than any
    if (k == 0) {
      largest = best;
      for (int e = lane; e < router.count; e += 32) {
        of_all += expf(logits[e] - largest);
      }
      of_all = lane_sum(of_all);
    }
    const float score = router.score == RouterScore::sigmoid ? sigmoid(best) : expf(best - largest);
    of_chosen += score;
    __syncwarp();
    if (lane == 0) {
      experts[k] = expert;
      weights[k] = score;
      logits[expert] = -INFINITY;
    }
    __syncwarp();
  }
  const bool of_those = router.normalized || router.score == RouterScore::softmax_of_chosen;
  const float by = of_those ? of_chosen : router.score == RouterScore::softmax ? of_all : 1.0F;
  for (int k = lane; k < router.active; k += 32) {
    weights[k] /= by;
  }
}

}  // namespace winnow::ops::cuda
