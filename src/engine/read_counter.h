// Counts the entries that a sequence's queries read, and those that its cache holds, per step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/request.h"
#include "kvcache/cache_shape.h"
#include "kvcache/rule_traits.h"
#include "ops/matrix.h"

namespace winnow::engine {

/// Fills in CacheReads while a sequence is computed. Recomputation after a preemption does not
/// count again.
class ReadCounter {
 public:
  ReadCounter(const kvcache::RuleTraits& rule, const kvcache::CacheShape& shape)
      : rule_(&rule), shape_(shape) {}

  /// Whether record() needs the number of entries seen by each query in a step of `tokens` tokens.
  /// Otherwise they follow from the cache.
  [[nodiscard]] bool needs_visible(int tokens) const;

  /// Records the tokens at positions [first, first + tokens) of a sequence whose prompt has
  /// `prompt` tokens. The cache has taken them and now holds `live` entries. `visible` [tokens,
  /// heads]: the number of entries that each query saw; may be empty unless needed.
  void record(int first, int tokens, int prompt, std::int64_t live,
              ops::Matrix<const std::int32_t> visible);

  /// A counter for a fork of the sequence. The shared part stays counted here only.
  [[nodiscard]] ReadCounter fork() const;

  [[nodiscard]] const CacheReads& reads() const { return reads_; }

 private:
  const kvcache::RuleTraits* rule_;
  kvcache::CacheShape shape_;
  int counted_ = 0;                   // positions that have been counted
  std::optional<std::int64_t> held_;  // entries after the last step
  CacheReads reads_;
};

/// The largest number of entries that samples hold together if all of them start at their prompts
/// and run step by step until each ends. Assumes that nothing is shared.
std::int64_t peak_entries(std::span<const CacheReads> samples);

}  // namespace winnow::engine
