#include "kvcache/sequence_cache.h"

#include "base/error.h"
#include "kvcache/calibration.h"

namespace winnow::kvcache {

Cache::Cache(const CacheConfig& config, const CacheShape& shape)
    : config_(config),
      shape_(shape),
      archive_pool_(shape.page_layout(config.format), config.max_bytes),
      state_pool_(shape.states) {
  validate(config);
  validate(shape);
  if (config.traits().calibrated) {
    require(shape.calibration != nullptr, "a {} cache needs statistics of the model's queries",
            config.traits().name);
    validate(*shape.calibration, shape, "calibration");
  }
  if (config.traits().merges && config.format != ops::EntryFormat::f32) {
    open_pool_ =
        std::make_unique<PagePool>(shape.page_layout(ops::EntryFormat::f32), config.max_bytes);
  }
}

ops::AttentionShape Cache::attention_shape(int layer) const {
  return {.head_dim = shape_.head_dim,
          .group = shape_.group_of(layer),
          .scale = shape_.score_scale(),
          .archive = archive_pool_.layout(),
          .window = open_pool_ && shape_.reach_of(layer) == 0 ? open_pool_->layout()
                                                              : archive_pool_.layout(),
          .soft_cap = shape_.soft_cap};
}

bool Cache::has_pages(const PageNeed& need) const {
  const PagePool& windows = open_pool_ ? *open_pool_ : archive_pool_;
  return page_bytes() + archive_pool_.bytes_of(need.archive) + windows.bytes_of(need.window) +
             need.states * shape_.states.bytes() <=
         capacity_bytes();
}

SequenceCache::SequenceCache(Cache& cache, const SequenceLimits& limits)
    : cache_(&cache), rule_(cache.config(), limits), state_(cache.state_pool()) {
  const CacheShape& shape = cache.shape();
  heads_.reserve(static_cast<std::size_t>(shape.all_heads()));
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads_of(layer); ++head) {
      heads_.emplace_back(cache.archive_pool(), cache.window_pool(layer));
    }
  }
}

std::int64_t SequenceCache::live_entries() const {
  std::int64_t total = 0;
  for (const HeadCache& head : heads_) {
    total += head.live_entries();
  }
  return total;
}

std::size_t SequenceCache::bytes() const {
  const auto page_bytes = [](const EntryList& list) {
    return list.pages().size() * list.pool().layout().page_bytes();
  };
  std::size_t total = state_.bytes();
  for (const HeadCache& head : heads_) {
    total += page_bytes(head.archive()) + page_bytes(head.window()) + head.metadata_bytes();
  }
  return total;
}

std::size_t SequenceCache::dense_bytes() const {
  const CacheShape& shape = cache_->shape();
  const std::size_t page_bytes = cache_->archive_pool().layout().page_bytes();
  std::size_t total = state_.bytes();
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::size_t pages = ops::pages_for(shape.dense_entries(layer, length()));
    total += static_cast<std::size_t>(shape.kv_heads_of(layer)) *
             (sizeof(HeadCache) + pages * (page_bytes + sizeof(PageId)));
  }
  return total;
}

int SequenceCache::rows_at_once(int layer, int rows) const {
  const Rule layer_rule = rule(layer);
  int at_once = rows;
  for (int h = 0; h < cache_->shape().kv_heads_of(layer); ++h) {
    at_once = head(layer, h).rows_at_once(layer_rule, at_once);
  }
  return at_once;
}

PageNeed SequenceCache::page_need(int tokens) const {
  const CacheShape& shape = cache_->shape();
  PageNeed total{.states = state_.needs_memory() ? std::size_t{1} : std::size_t{0}};
  for (int layer = 0; layer < shape.layers; ++layer) {
    const Rule layer_rule = rule(layer);
    PageNeed need;
    for (int h = 0; h < shape.kv_heads_of(layer); ++h) {
      need += head(layer, h).page_need(layer_rule, tokens);
    }
    if (&cache_->window_pool(layer) == &cache_->archive_pool()) {
      need = {.archive = need.archive + need.window, .window = 0};
    }
    total += need;
  }
  return total;
}

}  // namespace winnow::kvcache
