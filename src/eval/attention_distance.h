// The distances at which a model's queries attend.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/llm_load.h"

namespace winnow::eval {

/// Shares of attention by distance: means over the queries of the second half of a text, all of
/// which can see near and far, and over the query heads of a KV head. The first token is separate:
/// heads use it as an attention sink.
struct AttentionDistance {
  std::vector<int> first;  // [bins]: the smallest distance of each: 0, 1, 2, 4, 8 ...
  int heads = 0;           // layers x KV heads
  /// [heads, bins + 1]; the last column is for the first token. Each row sums to 1.
  std::vector<double> shares;

  [[nodiscard]] std::span<const double> of_head(int head) const {
    return std::span(shares).subspan(static_cast<std::size_t>(head) * (first.size() + 1),
                                     first.size() + 1);
  }
  /// The mean over all heads.
  [[nodiscard]] std::vector<double> mean() const;
};

/// Reads `tokens` one at a time on the CPU, with a dense cache, whatever the model's rule.
/// `on_progress` is called with the tokens done; false stops, and the result is that of
/// the queries so far, empty if none was in the second half.
AttentionDistance measure_attention_distance(
    const engine::LoadedModel& model, std::span<const std::int32_t> tokens,
    const std::function<bool(std::int64_t)>& on_progress = {});

}  // namespace winnow::eval
