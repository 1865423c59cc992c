#include "engine/cache_memory.h"

#include <gtest/gtest.h>

#include "base/host_memory.h"
#include "engine/engine_world.h"

namespace winnow::engine {
namespace {

/// Reference counts of the tiny model's pages take one percent in addition to the pages.
const auto kMost = static_cast<std::size_t>(0.92 * static_cast<double>(total_host_memory()));

std::size_t capacity(const Backend& backend) {
  EngineConfig config;
  config.cache.max_bytes = kAllThereIs;
  return backend.make_runner(config)->capacity_bytes();
}

TEST(CacheMemory, WeightsAndActivationsHaveTheRest) {
  EXPECT_EQ(cache_room(1000), 900U);
  const Backend& one = testing::backend_for(testing::RuleKind::dense, DType::bf16, {}, 1);
  EXPECT_LE(capacity(one), kMost);
  EXPECT_GT(capacity(one), total_host_memory() / 2) << "the model is tiny";
}

TEST(CacheMemory, CopiesTakeAFourthOfWhatWeightsLeaveAtMost) {
  EXPECT_TRUE(has_room_for_copies(250, 1000, kAllThereIs));
  EXPECT_FALSE(has_room_for_copies(251, 1000, kAllThereIs));
  EXPECT_TRUE(has_room_for_copies(100, 1000, 800)) << "nine tenths of 1,000, less the copies";
  EXPECT_FALSE(has_room_for_copies(100, 1000, 801));
  EXPECT_TRUE(has_room_for_copies(600, 1000, 300)) << "what the cache does not want is free";
  EXPECT_FALSE(has_room_for_copies(901, 1000, 0));
}

TEST(CacheMemory, RanksShareTheMachine) {
  const Backend& two = testing::backend_for(testing::RuleKind::dense, DType::bf16, {}, 2);
  EXPECT_LE(capacity(two), kMost);
  EXPECT_GT(capacity(two), total_host_memory() / 2);
}

}  // namespace
}  // namespace winnow::engine
