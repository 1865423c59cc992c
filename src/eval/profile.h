// Where a model keeps what: compression by layer and head, by length and by position, and the fate
// of every token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "api/llm_load.h"
#include "kvcache/cache_shape.h"

namespace winnow::eval {

/// What became of a token in a head.
enum class Fate : std::uint8_t {
  gone,     // DMS: evicted; DMC: merged into the entry before it
  kept,     // an entry of its own
  pending,  // DMS: still in the window; or of a layer with a sliding window, which decides nothing
};

struct Profile {
  int tokens = 0;
  kvcache::CacheShape shape;
  int heads = 0;                      // layers x KV heads
  std::vector<std::int32_t> live;     // [heads]: entries at the end
  std::vector<std::int32_t> visible;  // [tokens, heads]: entries that each query saw
  /// [tokens, heads]; empty for rules whose choice does not follow from `visible`: all but dense,
  /// DMS and DMC.
  std::vector<Fate> fates;

  /// Entries of a dense cache over stored ones when `length` tokens had been read.
  [[nodiscard]] double ratio_at(int length) const;
  /// Share of tokens at positions [first, last) with an entry of their own, over all heads; pending
  /// ones do not count. NaN when there are none.
  [[nodiscard]] double kept_share(int first, int last) const;
  /// Share of heads in which the token has an entry of its own or is still pending.
  [[nodiscard]] double share_of_heads(int token) const;
};

/// Reads `tokens`; `on_progress` is called with the tokens done, false ends it there.
Profile measure_profile(const engine::LoadedModel& model, std::span<const std::int32_t> tokens,
                        const std::function<bool(std::int64_t)>& on_progress = {});

}  // namespace winnow::eval
