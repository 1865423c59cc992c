// Memory that a loop prefetches while it computes.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace winnow::ops::cpu {

/// Memory that a loop prefetches into the second-level cache, an equal share in each step. A core
/// can wait for fewer lines at a time if they go to the first level.
class Upcoming {
 public:
  Upcoming() = default;
  Upcoming(std::span<const std::byte> memory, std::size_t steps)
      : memory_(memory), share_((memory.size() + steps - 1) / steps) {}

  /// Prefetches the shares of `count` steps from `step` on. Always inline: GCC drops calls of a
  /// function that only prefetches.
  HWY_INLINE void fetch(std::size_t step, std::size_t count) const {
    constexpr std::size_t kCacheLine = 64;
    const std::size_t end = std::min((step + count) * share_, memory_.size());
    for (std::size_t byte = step * share_; byte < end; byte += kCacheLine) {
      __builtin_prefetch(&memory_[byte], 0, 2);
    }
  }

 private:
  std::span<const std::byte> memory_;
  std::size_t share_ = 0;
};

}  // namespace winnow::ops::cpu
