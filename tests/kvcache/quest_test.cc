#include "kvcache/quest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "base/random.h"

namespace winnow::kvcache {
namespace {

std::vector<float> normal(std::size_t count, Random& random) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(random.normal());
  }
  return values;
}

TEST(PageBounds, BoundEveryKeyOfTheirPage) {
  Random random(1);
  PageBounds bounds;
  std::vector<std::vector<float>> keys;
  for (int i = 0; i < 70; ++i) {
    keys.push_back(normal(8, random));
    bounds.add(i, 32, keys.back());
  }
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto query = normal(8, random);
    for (int i = 0; i < 70; ++i) {
      const auto& key = keys[static_cast<std::size_t>(i)];
      const float score = std::inner_product(query.begin(), query.end(), key.begin(), 0.0F);
      EXPECT_GE(bounds.upper_bound(i / 32, query), score - 1e-5F);
    }
  }
}

TEST(PageBounds, TheBoundOfOneKeyIsItsScore) {
  PageBounds bounds;
  const std::vector<float> key{1.0F, -2.0F, 0.5F};
  const std::vector<float> query{3.0F, 4.0F, -2.0F};
  bounds.add(0, 16, key);
  EXPECT_FLOAT_EQ(bounds.upper_bound(0, query), 3.0F - 8.0F - 1.0F);
}

// Pages with one entry of one channel: the bound is the key itself.
std::vector<int> select(const std::vector<float>& keys, int count, bool with_last = true) {
  PageBounds bounds;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    bounds.add(static_cast<int>(i), 1, std::span(&keys[i], 1));
  }
  const float query = 1.0F;
  return select_pages(
      bounds, {.pages = static_cast<int>(keys.size()), .count = count, .with_last = with_last},
      std::span(&query, 1));
}

TEST(SelectPages, TheNewestAndTheHighest) {
  EXPECT_EQ(select({5, 1, 9, 7, -3}, 3), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(select({5, 1, 9, 7, -3}, 1), (std::vector<int>{4}));
  EXPECT_EQ(select({5, 1, 9, 7, 100}, 2), (std::vector<int>{2, 4}));
}

TEST(SelectPages, TheHighestAloneWhereTheWindowHasTheNewest) {
  EXPECT_EQ(select({5, 1, 9, 7, -3}, 3, false), (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(select({5, 1, 9, 7, -3}, 1, false), (std::vector<int>{2}));
  EXPECT_EQ(select({2, 2, 2, 2, 2}, 3, false), (std::vector<int>{0, 1, 2}));
}

TEST(SelectPages, OfEqualsTheOldest) {
  EXPECT_EQ(select({2, 2, 2, 2, 2}, 3), (std::vector<int>{0, 1, 4}));
}

TEST(SelectPages, EverythingWhenItFits) {
  EXPECT_EQ(select({1, 2, 3}, 3), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(select({1, 2, 3}, 7), (std::vector<int>{0, 1, 2}));
}

}  // namespace
}  // namespace winnow::kvcache
