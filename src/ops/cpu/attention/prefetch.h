// Memory that a loop asks for while it computes.
#pragma once

#include <hwy/base.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace winnow::ops::cpu {

/// Memory that the steps of a loop fetch, each an equal share of it, into the second-level cache:
/// for the first one a core waits for fewer lines at a time.
class Upcoming {
 public:
  Upcoming() = default;
  Upcoming(std::span<const std::byte> memory, std::size_t steps)
      : memory_(memory), share_((memory.size() + steps - 1) / steps) {}

  /// What `count` steps from `step` on fetch. Always inline: GCC drops calls of a function that
  /// does nothing but fetch.
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
