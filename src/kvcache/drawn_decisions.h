// Decisions for benchmarks of untrained shapes.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace winnow::kvcache {

/// Random decisions from position, layer and head in place of a model's. They are the same for any
/// chunking and on every device.
struct DrawnDecisions {
  /// Of all heads' tokens, the share that is evicted or merged.
  double rate = 0.0;
  /// Heads keep 1 - spread to 1 + spread times the average.
  double spread = 0.0;
  /// What is asked for as head 0: a rank may have only some of a layer's heads.
  int first_head = 0;

  /// The share of a head's tokens. Heads' shares lie evenly in the range, neighbours' far apart
  /// (multiples of the golden ratio).
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

  /// Above 0 where the decision is to evict.
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
