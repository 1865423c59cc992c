#include "kvcache/sequence_cache.h"

#include <cmath>

#include "base/error.h"

namespace winnow::kvcache {

Cache::Cache(const CacheConfig& config, const CacheShape& shape)
    : config_(config),
      shape_(shape),
      archive_pool_(ops::PageLayout(config.format, shape.head_dim), config.max_bytes) {
  validate(config);
  if (config.traits().merges && config.format != ops::EntryFormat::f32) {
    open_pool_ = std::make_unique<PagePool>(ops::PageLayout(ops::EntryFormat::f32, shape.head_dim),
                                            config.max_bytes);
  }
}

ops::AttentionShape Cache::attention_shape() const {
  return {.head_dim = shape_.head_dim,
          .group = shape_.group,
          .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
          .archive = archive_pool_.layout(),
          .window = open_pool_ ? open_pool_->layout() : archive_pool_.layout()};
}

bool Cache::has_pages(const PageNeed& need) const {
  const PagePool& windows = open_pool_ ? *open_pool_ : archive_pool_;
  return page_bytes() + archive_pool_.bytes_of(need.archive) + windows.bytes_of(need.window) <=
         capacity_bytes();
}

SequenceCache::SequenceCache(Cache& cache, const SequenceLimits& limits)
    : cache_(&cache), rule_(cache.config(), limits) {
  const auto count = static_cast<std::size_t>(cache.shape().layers * cache.shape().kv_heads);
  heads_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    heads_.emplace_back(cache.archive_pool(), cache.window_pool());
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
  const std::size_t archive_page = cache_->archive_pool().layout().page_bytes();
  const std::size_t window_page = cache_->window_pool().layout().page_bytes();
  std::size_t total = 0;
  for (const HeadCache& head : heads_) {
    total += head.archive().pages().size() * archive_page +
             head.window().pages().size() * window_page + head.metadata_bytes();
  }
  return total;
}

std::size_t SequenceCache::dense_bytes() const {
  const auto pages = ops::pages_for(length());
  const std::size_t page_bytes = cache_->archive_pool().layout().page_bytes();
  return heads_.size() * (sizeof(HeadCache) + pages * (page_bytes + sizeof(PageId)));
}

PageNeed SequenceCache::page_need(int tokens) const {
  PageNeed total;
  for (const HeadCache& head : heads_) {
    total += head.page_need(rule_, tokens);
  }
  return total;
}

}  // namespace winnow::kvcache
