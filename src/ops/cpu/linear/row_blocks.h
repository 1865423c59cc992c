// Weight rows in small blocks, split between threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/threads.h"
#include "ops/linear.h"

namespace winnow::ops::cpu {

/// Our kernels handle weight rows in blocks of this many, or of a multiple.
inline constexpr std::size_t kRowBlock = 4;

/// body(target, begin, end, thread) for ranges of weight rows that together cover all rows of all
/// targets, split at multiples of kBlock. The blocks of all targets form one range, so that small
/// targets share one parallel loop.
template <std::size_t kBlock = kRowBlock, class Body>
void for_weight_rows(std::span<const LinearTarget> targets, const Body& body) {
  const auto row_blocks = [](const LinearTarget& target) {
    return (static_cast<std::size_t>(target.weight->rows) + kBlock - 1) / kBlock;
  };
  std::size_t blocks = 0;
  for (const auto& target : targets) {
    blocks += row_blocks(target);
  }
  parallel_ranges(blocks, [&](std::size_t begin, std::size_t end, int thread) {
    std::size_t first = 0;  // the first block of this target
    for (const auto& target : targets) {
      const std::size_t count = row_blocks(target);
      const std::size_t from = std::clamp(begin, first, first + count) - first;
      const std::size_t to = std::clamp(end, first, first + count) - first;
      if (from < to) {
        const auto rows = static_cast<std::size_t>(target.weight->rows);
        body(target, from * kBlock, std::min(to * kBlock, rows), thread);
      }
      first += count;
    }
  });
}

/// Like for_weight_rows<kLarge>() or, if blocks so large would be shared unevenly among threads,
/// like <kSmall>().
template <std::size_t kSmall, std::size_t kLarge, class Body>
void for_weight_rows_evenly(std::span<const LinearTarget> targets, const Body& body) {
  std::size_t rows = 0;
  for (const LinearTarget& target : targets) {
    rows += static_cast<std::size_t>(target.weight->rows);
  }
  rows < 2 * kLarge* static_cast<std::size_t>(thread_count())
      ? for_weight_rows<kSmall>(targets, body)
      : for_weight_rows<kLarge>(targets, body);
}

}  // namespace winnow::ops::cpu
