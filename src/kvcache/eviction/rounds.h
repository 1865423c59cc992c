// Rules that drop entries in rounds: a buffer fills, then as many go.
#pragma once

#include <algorithm>

#include "kvcache/rule.h"

namespace winnow::kvcache {

/// Entries that go in a round: R-KV's and TriAttention's 128, of a small budget fewer.
inline int round_size(const Rule& rule) {
  constexpr int kMost = 128;
  return std::clamp(rule.budget / 4, 1, kMost);
}

/// Entries that stay in each.
inline int kept_of_round(const Rule& rule) {
  return std::max(1, rule.budget - round_size(rule));
}

/// Entries held when so many have come since the last ones were dropped, or ever.
inline int held_in_rounds(const Rule& rule, int filled) {
  return filled < rule.budget ? filled
                              : kept_of_round(rule) + (filled - rule.budget) % round_size(rule);
}

}  // namespace winnow::kvcache
