// One row of a softmax over scores that arrive block by block (Milakov and Gimelshein 2018).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "ops/cpu/attention/attention_kernels.h"

namespace winnow::ops::cpu {

/// The sum of the exponentials of all scores so far, relative to `shift`, the largest of them.
struct RunningSoftmax {
  float shift = -std::numeric_limits<float>::infinity();
  float sum = 0.0F;

  /// Converts the next scores to weights relative to the new shift, and rescales `out`, the
  /// weighted sum so far, to it as well.
  void take(std::span<float> scores, std::span<float> out) {
    if (scores.empty()) {
      return;
    }
    const float largest = std::max(shift, max_of(scores));
    if (largest > shift) {
      const float factor = std::exp(shift - largest);
      sum *= factor;
      scale_by(out, factor);
      shift = largest;
    }
    sum += exp_shifted(scores, shift);
  }
};

/// The softmax of query head g before its first scores: empty, or only its sink if there are sinks.
inline RunningSoftmax softmax_after(const float* sinks, std::size_t g) {
  return sinks == nullptr ? RunningSoftmax() : RunningSoftmax{sinks[g], 1.0F};
}

}  // namespace winnow::ops::cpu
