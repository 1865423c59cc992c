#include "engine/token_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kvcache/property.h"

namespace winnow::engine {
namespace {

TEST(TokenBudget, PromptsGetWhatDecodingLeavesButNeverNothing) {
  EXPECT_EQ(prompt_budget(512, 0), 512);
  EXPECT_EQ(prompt_budget(512, 64), 448);
  EXPECT_EQ(prompt_budget(512, 500), 128);
  EXPECT_EQ(prompt_budget(512, 5000), 128);
  EXPECT_EQ(prompt_budget(1, 7), 1);
}

TEST(TokenBudget, ShortPromptsPassLongOnes) {
  const std::vector<int> pending{3000, 20, 3000};
  EXPECT_EQ(deal_tokens(pending, 512), (std::vector<int>{246, 20, 246}));
  EXPECT_EQ(deal_tokens(std::vector<int>{5, 5, 5}, 2), (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(deal_tokens(std::vector<int>{}, 512), std::vector<int>{});
}

TEST(TokenBudget, DealsAllThereIsAndFairly) {
  EXPECT_TRUE(winnow::testing::holds("max-min fairness", 200, [] {
    const auto pending = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 1000));
    const int budget = *rc::gen::inRange(0, 2000);
    const auto shares = deal_tokens(pending, budget);
    const auto sum = [](const auto& v) { return std::accumulate(v.begin(), v.end(), 0); };
    RC_ASSERT(sum(shares) == std::min(budget, sum(pending)));
    // The remainder of a division among n prompts is less than n tokens.
    const int slack = static_cast<int>(pending.size());
    for (std::size_t i = 0; i < pending.size(); ++i) {
      RC_ASSERT(shares[i] >= 0 && shares[i] <= pending[i]);
      for (std::size_t j = 0; j < pending.size(); ++j) {
        RC_ASSERT(shares[i] == pending[i] || shares[j] <= shares[i] + slack);
      }
    }
  }));
}

TEST(PromptPlaces, LongPromptsLeaveOneToShortOnes) {
  PromptPlaces places(80);
  for (int i = 0; i < 7; ++i) {
    EXPECT_TRUE(places.has_one_for(1000));
    places.take(1000);
  }
  EXPECT_FALSE(places.has_one_for(11));
  EXPECT_TRUE(places.has_one_for(10));
  places.take(4);
  EXPECT_TRUE(places.has_one_for(6));
  places.take(6);
  EXPECT_FALSE(places.has_one_for(1));
}

TEST(PromptPlaces, ThereIsAlwaysOne) {
  PromptPlaces places(1);
  EXPECT_TRUE(places.has_one_for(1000));
  places.take(1000);
  EXPECT_FALSE(places.has_one_for(1));
}

}  // namespace
}  // namespace winnow::engine
