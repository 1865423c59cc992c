// Decisions for benchmarks of untrained shapes.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace winnow::kvcache {

/// Random decisions in place of a model's, from position, layer and head. They are the same for any
/// chunking and on every device.
struct DrawnDecisions {
  /// The share of all heads' tokens that is evicted or merged.
  double rate = 0.0;
  /// Heads keep 1 - spread to 1 + spread times the average.
  double spread = 0.0;
  /// The index in the whole layer of the caller's head 0: a rank may have only some of the heads.
  int first_head = 0;

  /// The share of a head's tokens. Shares are spread evenly over the range, and neighbouring heads
  /// have very different ones (multiples of the golden ratio).
  [[nodiscard]] constexpr double rate_of(int layer, int head) const {
    constexpr double kGoldenRatio = 0.618033988749895;
    constexpr int kLayerStep = 37;
    const double place = kGoldenRatio * (layer * kLayerStep + first_head + head);
    const double even = place - static_cast<double>(static_cast<std::int64_t>(place));
    return 1.0 - (1.0 - rate) * (1.0 + spread * (2.0 * even - 1.0));
  }

  [[nodiscard]] constexpr bool operator()(int position, int layer, int head) const {
    return draw(position, layer, head) < rate_of(layer, head);
  }

  /// Positive where the decision is to evict.
  [[nodiscard]] constexpr float logit(int position, int layer, int head) const {
    return static_cast<float>(rate_of(layer, head) - draw(position, layer, head));
  }

 private:
  [[nodiscard]] constexpr double draw(int position, int layer, int head) const {
    Random random(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(layer));
    double x = 0.0;
    for (int h = 0; h <= first_head + head; ++h) {
      x = random.uniform();
    }
    return x;
  }
};

}  // namespace winnow::kvcache
