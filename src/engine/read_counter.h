// How many entries a sequence's queries read, and how many its cache holds, step by step.
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

  /// Whether record() needs the entries seen by each query of a step of `tokens` tokens; otherwise
  /// they follow from the cache.
  [[nodiscard]] bool needs_visible(int tokens) const;

  /// The tokens at positions [first, first + tokens) of a sequence whose prompt has `prompt` tokens
  /// are in the cache, which holds `live` entries now. `visible` [tokens, heads]: how many entries
  /// each query saw; may be empty unless needed.
  void record(int first, int tokens, int prompt, std::int64_t live,
              ops::Matrix<const std::int32_t> visible);

  /// For an independent continuation; the shared part was counted here.
  [[nodiscard]] ReadCounter fork() const;

  [[nodiscard]] const CacheReads& reads() const { return reads_; }

 private:
  const kvcache::RuleTraits* rule_;
  kvcache::CacheShape shape_;
  int counted_ = 0;                   // positions that have been counted
  std::optional<std::int64_t> held_;  // entries when the last step was over
  CacheReads reads_;
};

/// The largest number of entries that samples hold together when all take their steps side by side,
/// each from its prompt on until it ends; nothing is taken to be shared.
std::int64_t peak_entries(std::span<const CacheReads> samples);

}  // namespace winnow::engine
