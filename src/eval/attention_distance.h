// How far a model's queries look.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/llm_load.h"

namespace winnow::eval {

/// Shares of attention by distance: means over the queries of the second half of a text, which see
/// near and far alike, and over the query heads of a KV head. The first token, where heads put what
/// they have no use for, is counted apart.
struct AttentionDistance {
  std::vector<int> first;  // [bins]: the nearest distance of each: 0, 1, 2, 4, 8 ...
  int heads = 0;           // layers x KV heads
  /// [heads, bins + 1], the last column the first token's. Each row sums to 1.
  std::vector<double> shares;

  [[nodiscard]] std::span<const double> of_head(int head) const {
    return std::span(shares).subspan(static_cast<std::size_t>(head) * (first.size() + 1),
                                     first.size() + 1);
  }
  /// The mean of all heads.
  [[nodiscard]] std::vector<double> mean() const;
};

/// Reads `tokens` one at a time on the CPU, with a dense cache under every rule.
/// `on_progress` is called with the tokens done; false ends it there, and the result is that of
/// the queries so far, empty if there was none of the second half.
AttentionDistance measure_attention_distance(
    const engine::LoadedModel& model, std::span<const std::int32_t> tokens,
    const std::function<bool(std::int64_t)>& on_progress = {});

}  // namespace winnow::eval
