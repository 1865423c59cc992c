// Which heads of the cache still hold which tokens, derived from what queries saw.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/request.h"
#include "kvcache/rule.h"

namespace winnow::server {

/// Under DMS, a query sees its window and the archive: if it sees one archived entry more than the
/// query before, the token that has just left the window was kept. So the counts alone show for
/// each token and head whether it is held. (Dense caches keep all; for other rules, only counts are
/// reported.)
class HeldTokens {
 public:
  HeldTokens(const kvcache::CacheConfig& config, int heads)
      : config_(config), archived_(static_cast<std::size_t>(heads), 0) {}

  /// {"position", "tokens", "live": [heads], "kept": ["0f", ...]}: the news of a trace. "live": the
  /// entries that the last token's query saw. kept[i] is a hexadecimal mask of the heads (the
  /// first head is the lowest bit) that archived the token at position + i - (window + 1); there is
  /// none for tokens before the first. DMS only.
  nlohmann::ordered_json next(const engine::CacheTrace& trace);

 private:
  kvcache::CacheConfig config_;
  std::vector<int> archived_;  // by head, as of the last token
};

}  // namespace winnow::server
