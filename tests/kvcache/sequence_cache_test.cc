#include "kvcache/sequence_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kvcache/any_calibration.h"

namespace winnow::kvcache {
namespace {

const CacheShape kCacheShape{.layers = 2, .kv_heads = 2, .head_dim = 8, .group = 1};

TEST(Cache, OpenEntriesAndArchiveShareOneLimit) {
  CacheConfig config;
  config.rule = RuleKind::dmc;
  config.format = ops::EntryFormat::bf16;
  config.max_bytes = std::size_t{1} << 20;
  Cache cache(config, kCacheShape);
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
  Cache cache(config, kCacheShape);
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
  Cache cache(config, kCacheShape);
  const SequenceCache sequence(cache, {});
  EXPECT_LT(sequence.bytes(), std::size_t{1} << 12);
}

TEST(SequenceCache, ASlidingLayerHoldsItsReachWhateverTheRule) {
  constexpr int kReach = 20;
  constexpr int kTokens = 100;
  const CacheShape shape{
      .layers = 2, .kv_heads = 1, .head_dim = 8, .group = 1, .reach = {0, kReach}};
  for (const RuleTraits& traits : kRules) {
    SCOPED_TRACE(traits.name);
    CacheConfig config;
    config.rule = traits.kind;
    config.window = 50;
    config.cr = 2.0;
    config.max_bytes = std::size_t{1} << 20;
    Cache cache(config, winnow::testing::calibrated(shape));
    SequenceCache sequence(cache, {kTokens, kTokens});
    const std::vector<float> row(8, 1.0F);
    for (int t = 0; t < kTokens; ++t) {
      for (int layer = 0; layer < 2; ++layer) {
        sequence.head(layer, 0).append(sequence.rule(layer),
                                       {.key = row, .value = row, .decision = t % 2 == 0});
      }
      EXPECT_EQ(sequence.head(1, 0).live_entries(), std::min(t + 1, kReach));
    }
    EXPECT_EQ(sequence.head(1, 0).archive().size(), 0);
    // A dense cache would hold 7 pages of the full layer and 2 of the other.
    EXPECT_EQ(shape.dense_entries(kTokens), kTokens + kReach);
    EXPECT_EQ(
        sequence.dense_bytes(),
        2 * sizeof(HeadCache) + 9 * (cache.archive_pool().layout().page_bytes() + sizeof(PageId)));
    EXPECT_LE(sequence.page_need(1).archive, 2U);
  }
}

TEST(Cache, RefusesAReachThatIsNone) {
  CacheShape shape = kCacheShape;
  shape.reach = {4};
  EXPECT_THROW(Cache({}, shape), Error);
  shape.reach = {4, -1};
  EXPECT_THROW(Cache({}, shape), Error);
}

}  // namespace
}  // namespace winnow::kvcache
