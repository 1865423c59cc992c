// Rules that drop entries in rounds: when the buffer is full, as many entries are dropped.
#pragma once

#include <algorithm>

#include "kvcache/rule.h"

namespace winnow::kvcache {

/// Entries dropped in a round: 128 as in R-KV and TriAttention, fewer for small budgets.
inline int round_size(const Rule& rule) {
  constexpr int kMost = 128;
  return std::clamp(rule.budget / 4, 1, kMost);
}

/// Entries kept in each round.
inline int kept_of_round(const Rule& rule) {
  return std::max(1, rule.budget - round_size(rule));
}

/// Entries held with rounds, where `filled` would be held without them.
inline int held_in_rounds(const Rule& rule, int filled) {
  return filled < rule.budget ? filled
                              : kept_of_round(rule) + (filled - rule.budget) % round_size(rule);
}

}  // namespace winnow::kvcache
