// The experts that a token uses, chosen by a warp.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/experts/choose_experts.cuh"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/router.h"

namespace winnow::ops::cuda {

/// The largest of a warp's values; on a tie the one with the lowest index.
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

/// The best of a warp's `values` [count] in shared memory, and its index; removes it from them.
inline __device__ void take_best(float* values, int count, float& best, int& index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  best = -INFINITY;
  index = count;
  for (int e = lane; e < count; e += 32) {
    if (values[e] > best || (values[e] == best && e < index)) {
      best = values[e];
      index = e;
    }
  }
  warp_best(best, index);
  index = min(index, count - 1);  // NaNs are never better
  __syncwarp();
  if (lane == 0) {
    values[index] = -INFINITY;
  }
  __syncwarp();
}

/// Turns the scores in `weights` of the active `experts` into their weights.
inline __device__ void finish_weights(const Router& router, float of_chosen, float of_all,
                                      const std::int32_t* experts, float* weights) {
  for (int k = static_cast<int>(threadIdx.x) % 32; k < router.active; k += 32) {
    weights[k] = finished_weight(router, weights[k], of_chosen, of_all, experts[k]);
  }
}

/// A warp per token. The token's `logits` [count] are in shared memory; the chosen ones are
/// removed.
inline __device__ void route_token(const Router& router, float* logits, std::int32_t* experts,
                                   float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float largest = -INFINITY;
  float of_chosen = 0.0F;
  float of_all = 0.0F;
  for (int k = 0; k < router.active; ++k) {
    float best = 0.0F;
    int expert = 0;
    take_best(logits, router.count, best, expert);
    if (k == 0) {
      largest = best;
      for (int e = lane; e < router.count; e += 32) {
        of_all += expf((e == expert ? best : logits[e]) - largest);
      }
      of_all = lane_sum(of_all);
    }
    const float score = router.score == RouterScore::sigmoid ? sigmoid(best) : expf(best - largest);
    of_chosen += score;
    if (lane == 0) {
      experts[k] = expert;
      weights[k] = score;
    }
  }
  __syncwarp();
  finish_weights(router, of_chosen, of_all, experts, weights);
}

/// The same for RouterScore::sparse_mixer.
inline __device__ void route_token_by_turns(const Router& router, float* logits,
                                            std::int32_t* experts, float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int k = 0; k < router.active; ++k) {
    float best = 0.0F;
    int expert = 0;
    take_best(logits, router.count, best, expert);
    float others = 0.0F;
    for (int e = lane; e < router.count; e += 32) {
      // Experts chosen before are at -infinity.
      others +=
          logits[e] > -INFINITY && router.is_near(logits[e], best) ? expf(logits[e] - best) : 0.0F;
    }
    others = lane_sum(others);
    if (lane == 0) {
      experts[k] = expert;
      weights[k] = 1.0F / (1.0F + others);
    }
  }
}

/// Excludes all experts outside the best groups from the choice. `sums` [groups] is scratch, in
/// shared memory like the scores.
inline __device__ void keep_best_groups(const Router& router, float* scores, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int size = router.count / router.groups;
  for (int g = lane; g < router.groups; g += 32) {
    float best = -INFINITY;
    const bool by_two = size > 1 && router.best_of_group > 1;
    float second = by_two ? -INFINITY : 0.0F;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float score = scores[e];
      second = by_two ? fmaxf(second, fminf(best, score)) : second;
      best = fmaxf(best, score);
    }
    sums[g] = best + second;
  }
  __syncwarp();
  for (int g = lane; g < router.groups; g += 32) {
    int better = 0;
    for (int other = 0; other < router.groups; ++other) {
      better += sums[other] > sums[g] || (sums[other] == sums[g] && other < g) ? 1 : 0;
    }
    for (int e = g * size; e < (g + 1) * size && better >= router.active_groups; ++e) {
      scores[e] = -INFINITY;
    }
  }
  __syncwarp();
}

/// The same if more than the logits decide (Router::goes_by_logits). `scratch` [count + groups] is
/// in shared memory; the logits are kept.
inline __device__ void route_token_by_choice(const Router& router, const float* logits,
                                             float* scratch, std::int32_t* experts,
                                             float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool sigmoids = router.score == RouterScore::sigmoid;
  float largest = -INFINITY;
  for (int e = lane; e < router.count; e += 32) {
    largest = fmaxf(largest, logits[e]);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, distance));
  }
  const auto score_of = [&](int e) {
    return sigmoids ? sigmoid(logits[e]) : expf(logits[e] - largest);
  };
  float of_all = 0.0F;
  for (int e = lane; e < router.count; e += 32) {
    of_all += score_of(e);
  }
  of_all = lane_sum(of_all);
  for (int e = lane; e < router.count; e += 32) {
    const float bias = router.choice_bias != nullptr ? router.choice_bias[e] : 0.0F;
    scratch[e] = score_of(e) / (sigmoids ? 1.0F : of_all) + bias;
  }
  __syncwarp();
  if (router.active_groups < router.groups) {
    keep_best_groups(router, scratch, scratch + router.count);
  }
  float of_chosen = 0.0F;
  for (int k = 0; k < router.active; ++k) {
    float best = 0.0F;
    int expert = 0;
    take_best(scratch, router.count, best, expert);
    const float score = score_of(expert);
    of_chosen += score;
    if (lane == 0) {
      experts[k] = expert;
      weights[k] = score;
    }
  }
  __syncwarp();
  finish_weights(router, of_chosen, of_all, experts, weights);
}

}  // namespace winnow::ops::cuda
