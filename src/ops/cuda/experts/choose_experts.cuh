// The experts of a token, chosen by a warp in registers.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/general/activation_curves.cuh"
#include "ops/router.h"

namespace winnow::ops::cuda {

/// The largest number of experts, and of active ones, for choose_experts().
inline constexpr int kMostInRegisters = 256;
inline constexpr int kMostChosen = kLanes;

/// A key that is monotonic in x: 1 for NaN, larger for every number.
inline __device__ std::uint32_t key_of(float x) {
  const std::uint32_t bits = __float_as_uint(x + 0.0F);  // maps -0 to 0
  const std::uint32_t key = (bits >> 31U) != 0U ? ~bits : bits | 0x80000000U;
  return isnan(x) ? 1U : key;
}

inline __device__ float of_key(std::uint32_t key) {
  return __uint_as_float((key >> 31U) != 0U ? key ^ 0x80000000U : ~key);
}

/// The weight of an active expert, from its score, the active ones' sum and the sum of all scores.
inline __device__ float finished_weight(const Router& router, float score, float of_chosen,
                                        float of_all, int expert) {
  const bool of_those = router.normalized || router.score == RouterScore::softmax_of_chosen;
  const float by = of_those ? of_chosen : router.score == RouterScore::softmax ? of_all : 1.0F;
  const float own = router.expert_scale != nullptr ? router.expert_scale[expert] : 1.0F;
  return score / by * router.scale * own;
}

struct ChosenExpert {
  std::int32_t expert = 0;
  float weight = 0.0F;
};

/// Lane k of the warp receives its token's k-th expert, as ops::route() chooses by logits [count].
/// Every lane must call it.
inline __device__ ChosenExpert choose_experts(const Router& router, const float* logits) {
  constexpr int kEach = kMostInRegisters / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  std::uint32_t keys[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int expert = lane + kLanes * i;
    keys[i] = expert < router.count ? key_of(__ldcg(logits + expert)) : 0U;
  }
  ChosenExpert chosen;
  float largest = 0.0F;
  float of_all = 0.0F;
  float of_chosen = 0.0F;
  for (int k = 0; k < router.active; ++k) {
    std::uint32_t own = 0U;
    auto index = static_cast<unsigned>(lane);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (keys[i] > own) {
        own = keys[i];
        index = static_cast<unsigned>(lane + kLanes * i);
      }
    }
    const std::uint32_t best = __reduce_max_sync(~0U, own);
    const unsigned expert = __reduce_min_sync(~0U, own == best ? index : ~0U);
    const float logit = of_key(best);
    if (k == 0) {
      largest = logit;
      if (router.score == RouterScore::softmax && !router.normalized) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          of_all += keys[i] != 0U ? expf(of_key(keys[i]) - largest) : 0.0F;
        }
        of_all = lane_sum(of_all);
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      keys[i] = static_cast<unsigned>(lane + kLanes * i) == expert ? 0U : keys[i];
    }
    const float score =
        router.score == RouterScore::sigmoid ? sigmoid(logit) : expf(logit - largest);
    of_chosen += score;
    if (lane == k) {
      chosen = {static_cast<std::int32_t>(expert), score};
    }
  }
  chosen.weight = finished_weight(router, chosen.weight, of_chosen, of_all, chosen.expert);
  return chosen;
}

}  // namespace winnow::ops::cuda
