// Where a model keeps entries: compression by layer and head, by length and by position, and the
// fate of every token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "kvcache/cache_shape.h"

namespace winnow::eval {

/// The fate of a token in a head.
enum class Fate : std::uint8_t {
  gone,     // DMS: evicted; DMC: merged into the entry before it
  kept,     // an entry of its own
  pending,  // DMS: still in the window; or in a layer with a sliding window, which decides nothing
};

struct Profile {
  int tokens = 0;
  kvcache::CacheShape shape;
  int heads = 0;                      // layers x KV heads
  std::vector<std::int32_t> live;     // [heads]: entries at the end
  std::vector<std::int32_t> visible;  // [tokens, heads]: entries that each query saw
  /// [tokens, heads]; empty for rules whose choice cannot be derived from `visible`: all but dense,
  /// DMS and DMC.
  std::vector<Fate> fates;

  /// Entries of a dense cache divided by stored ones after `length` tokens.
  [[nodiscard]] double ratio_at(int length) const;
  /// Share of tokens at positions [first, last) with their own entry, over all heads; pending
  /// ones do not count. NaN when there are none.
  [[nodiscard]] double kept_share(int first, int last) const;
  /// Share of heads in which the token has its own entry or is still pending.
  [[nodiscard]] double share_of_heads(int token) const;
};

/// Reads `tokens`; `on_progress` is called with the tokens done; false stops.
Profile measure_profile(const engine::LoadedModel& model, std::span<const std::int32_t> tokens,
                        const std::function<bool(std::int64_t)>& on_progress = {});

}  // namespace winnow::eval
