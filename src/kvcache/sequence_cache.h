// The cache of a model, and the part of it that one sequence holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvcache/cache_shape.h"
#include "kvcache/head_cache.h"
#include "kvcache/page_pool.h"
#include "kvcache/recurrent_state.h"
#include "kvcache/rule.h"
#include "ops/attention.h"

namespace winnow::kvcache {

class SequenceCache;

/// All entries of all sequences of one model, under one rule and one storage format, and the states
/// of its recurrent layers.
class Cache {
 public:
  Cache(const CacheConfig& config, const CacheShape& shape);

  [[nodiscard]] const CacheConfig& config() const { return config_; }
  [[nodiscard]] const CacheShape& shape() const { return shape_; }
  [[nodiscard]] ops::AttentionShape attention_shape(int layer) const;

  [[nodiscard]] PagePool& archive_pool() { return archive_pool_; }
  /// The pool for windows of full layers. DMC's open entries are running averages in float, with a
  /// pool of their own; all other windows use the archive's pool.
  [[nodiscard]] PagePool& window_pool() { return open_pool_ ? *open_pool_ : archive_pool_; }
  [[nodiscard]] PagePool& window_pool(int layer) {
    return shape_.reach_of(layer) > 0 ? archive_pool_ : window_pool();
  }

  [[nodiscard]] StatePool& state_pool() { return state_pool_; }

  /// Whether `need` more pages and states are free now.
  [[nodiscard]] bool has_pages(const PageNeed& need) const;

  /// Bytes of all allocated pages and states.
  [[nodiscard]] std::size_t page_bytes() const {
    return archive_pool_.bytes() + (open_pool_ ? open_pool_->bytes() : 0) + state_pool_.bytes();
  }
  /// Bytes of the states alone.
  [[nodiscard]] std::size_t state_bytes() const { return state_pool_.bytes(); }
  /// The limit of page_bytes(), which covers all pools together.
  [[nodiscard]] std::size_t capacity_bytes() const { return archive_pool_.capacity_bytes(); }

 private:
  CacheConfig config_;
  CacheShape shape_;
  PagePool archive_pool_;
  std::unique_ptr<PagePool> open_pool_;
  StatePool state_pool_;
};

/// One sequence's entries and state. Frees its pages when destroyed; the Cache must outlive it.
class SequenceCache {
 public:
  SequenceCache(Cache& cache, const SequenceLimits& limits);

  /// An independent continuation that shares all pages with this one until it writes.
  [[nodiscard]] SequenceCache fork() const { return *this; }

  SequenceCache(SequenceCache&&) = default;
  SequenceCache& operator=(SequenceCache&&) = default;

  [[nodiscard]] Cache& cache() const { return *cache_; }
  /// The rule of full layers.
  [[nodiscard]] const Rule& rule() const { return rule_; }
  [[nodiscard]] Rule rule(int layer) const { return rule_.of_layer(cache_->shape(), layer); }
  [[nodiscard]] HeadCache& head(int layer, int head) { return heads_[index(layer, head)]; }
  [[nodiscard]] const HeadCache& head(int layer, int head) const {
    return heads_[index(layer, head)];
  }
  /// The state of recurrent layers.
  [[nodiscard]] RecurrentState& state() { return state_; }
  [[nodiscard]] const RecurrentState& state() const { return state_; }
  /// Tokens that every layer has taken.
  [[nodiscard]] int length() const { return heads_.back().length(); }

  /// Entries held now, summed over layers and heads.
  [[nodiscard]] std::int64_t live_entries() const;
  /// Bytes held now: pages and state (those shared with other sequences too), tables and flags.
  [[nodiscard]] std::size_t bytes() const;
  /// Bytes that a dense cache of the same length and storage format would hold, with the state.
  [[nodiscard]] std::size_t dense_bytes() const;
  /// The number of the next `rows` tokens that all heads of a layer can process at once.
  [[nodiscard]] int rows_at_once(int layer, int rows) const;
  /// Most pages and states that `tokens` more tokens can need.
  [[nodiscard]] PageNeed page_need(int tokens) const;

 private:
  SequenceCache(const SequenceCache&) = default;
  [[nodiscard]] std::size_t index(int layer, int head) const {
    return static_cast<std::size_t>(cache_->shape().heads_before(layer) + head);
  }

  Cache* cache_;
  Rule rule_;
  std::vector<HeadCache> heads_;  // layer by layer
  RecurrentState state_;
};

}  // namespace winnow::kvcache
