#include "kvcache/sequence_cache.h"

#include <gtest/gtest.h>

namespace winnow::kvcache {
namespace {

constexpr CacheShape kShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .group = 1};

TEST(Cache, OpenEntriesAndArchiveShareOneLimit) {
  CacheConfig config;
  config.rule = RuleKind::dmc;
  config.format = ops::EntryFormat::bf16;
  config.max_bytes = std::size_t{1} << 20;
  Cache cache(config, kShape);
  EXPECT_LE(cache.capacity_bytes(), config.max_bytes + (config.max_bytes >> 6));
  const std::size_t archive = cache.archive_pool().capacity();
  EXPECT_TRUE(cache.has_pages({.archive = archive}));
  EXPECT_FALSE(cache.has_pages({.archive = archive, .window = 1}));
  EXPECT_TRUE(cache.has_pages({.archive = archive / 2, .window = 1}));
  const PageId open = cache.window_pool().allocate();
  EXPECT_FALSE(cache.has_pages({.archive = archive}));
  cache.window_pool().release(open);
}

TEST(Cache, HasPagesToTheLast) {
  CacheConfig config;
  config.max_bytes = std::size_t{1} << 20;
  Cache cache(config, kShape);
  const PageId page = cache.archive_pool().allocate();
  const std::size_t left = cache.archive_pool().capacity() - 1;
  EXPECT_TRUE(cache.has_pages({.archive = left}));
  EXPECT_FALSE(cache.has_pages({.archive = left + 1}));
  cache.archive_pool().release(page);
}

TEST(SequenceCache, AWindowTakesMemoryAsItFills) {
  CacheConfig config;
  config.rule = RuleKind::dms;
  config.window = 1 << 28;
  config.max_bytes = std::size_t{1} << 20;
  Cache cache(config, kShape);
  const SequenceCache sequence(cache, {});
  EXPECT_LT(sequence.bytes(), std::size_t{1} << 12);
}

}  // namespace
}  // namespace winnow::kvcache
