// Rules that drop entries drop the ones that their definitions name.
#include "kvcache/score_eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace winnow::kvcache {
namespace {

constexpr int kHeadDim = 8;

// A sequence whose attention weights the test sets: two KV heads of two query heads.
class ScoreEviction : public ::testing::Test {
 protected:
  void start(RuleKind rule, int budget) {
    CacheConfig config;
    config.rule = rule;
    config.format = ops::EntryFormat::f32;
    config.max_bytes = std::size_t{1} << 20;
    sequence_.reset();  // before its cache
    cache_ = std::make_unique<Cache>(config, CacheShape{1, 2, kHeadDim, 2});
    sequence_ = std::make_unique<SequenceCache>(*cache_, SequenceLimits{0, budget});
  }

  // Takes one token. `weights` by KV head, query head and position of entries that are still held.
  void step_heads(const std::vector<std::vector<std::vector<float>>>& weights) {
    std::vector<std::vector<float>> rows;
    for (int h = 0; h < 2; ++h) {
      const std::vector<float> key(kHeadDim, static_cast<float>(sequence_->head(0, h).length()));
      sequence_->head(0, h).append(sequence_->rule(), Token{key, key});
      rows.push_back(by_slot(h, weights[static_cast<std::size_t>(h)]));
    }
    const ops::DecodeRow views[] = {{nullptr, nullptr, {}, {}, rows[0].data()},
                                    {nullptr, nullptr, {}, {}, rows[1].data()}};
    evict_by_score({}, *sequence_, 0, views);
  }

  // The same weights for all heads.
  void step(const std::vector<float>& weights) {
    step_heads({{weights, weights}, {weights, weights}});
  }

  // Positions that a head holds, read from its keys: slots and entries must agree.
  std::vector<int> positions(int h) {
    HeadCache& head = sequence_->head(0, h);
    std::vector<int> result;
    for (int slot = 0; slot < head.archive().size(); ++slot) {
      std::vector<float> key(kHeadDim);
      std::vector<float> value(kHeadDim);
      const auto place = head.archive().at(slot);
      ops::load_entry(cache_->archive_pool().layout(), place.page, place.slot, key, value);
      result.push_back(static_cast<int>(key.front()));
      EXPECT_EQ(result.back(), head.slots().position(static_cast<std::size_t>(slot)));
    }
    std::ranges::sort(result);
    return result;
  }

 private:
  std::vector<float> by_slot(int h, const std::vector<std::vector<float>>& by_position) {
    const SlotScores& slots = sequence_->head(0, h).slots();
    std::vector<float> row;
    for (const auto& weights : by_position) {
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        row.push_back(weights[static_cast<std::size_t>(slots.position(slot))]);
      }
    }
    return row;
  }

  std::unique_ptr<Cache> cache_;
  std::unique_ptr<SequenceCache> sequence_;
};

using Positions = std::vector<int>;

TEST_F(ScoreEviction, TovaDropsTheLeastAttendedOfTheLayer) {
  start(RuleKind::tova, 3);
  step({1});
  step({1, 0});
  step({0, 1, 1});
  EXPECT_EQ(positions(0), (Positions{0, 1, 2}));
  // Over budget. Sums over all four query heads: 2.2, 1.3, 1.2, 1.4.
  step_heads({{{1, 0, 0.5F, 0.4F}, {1, 0, 0.5F, 0.4F}},
              {{0.1F, 1, 0.1F, 0.3F}, {0.1F, 0.3F, 0.1F, 0.3F}}});
  EXPECT_EQ(positions(0), (Positions{0, 1, 3}));
  EXPECT_EQ(positions(1), (Positions{0, 1, 3}));
  step({0.5F, 0.4F, 9, 0.3F, 0.1F});  // the newest entry itself may be dropped
  EXPECT_EQ(positions(0), (Positions{0, 1, 3}));
  step({0.1F, 0.4F, 9, 0.3F, 9, 0.2F});  // only this query's attention counts
  EXPECT_EQ(positions(1), (Positions{1, 3, 5}));
}

TEST_F(ScoreEviction, TovaOfEqualsTheOldest) {
  start(RuleKind::tova, 2);
  for (int t = 0; t < 5; ++t) {
    step(std::vector<float>(static_cast<std::size_t>(t + 1), 0.25F));
  }
  EXPECT_EQ(positions(0), (Positions{3, 4}));
}

TEST_F(ScoreEviction, H2oDropsTheLeastOfAllTimeOutsideTheRecentHalf) {
  start(RuleKind::h2o, 4);
  step({1});
  step({0.5F, 0.5F});
  step({0.1F, 0.1F, 0.8F});
  step({0.1F, 0.2F, 0.3F, 0.4F});
  EXPECT_EQ(positions(0), (Positions{0, 1, 2, 3}));
  // So far 1.7, 0.8, 1.1, 0.4; positions 3 and 4 are the recent half.
  step({0.1F, 0.2F, 0.3F, 0.3F, 0.1F});
  EXPECT_EQ(positions(0), (Positions{0, 2, 3, 4}));
  // Position 3 (0.4 + 0.3 + 0.1) is no longer recent.
  step({0, 0, 0, 0.1F, 0.1F, 0.8F});
  EXPECT_EQ(positions(0), (Positions{0, 2, 4, 5}));
}

TEST_F(ScoreEviction, H2oChoosesPerHead) {
  start(RuleKind::h2o, 2);
  step({1});
  step({0.5F, 0.5F});
  step_heads({{{0, 0.1F, 0.9F}, {0, 0, 0}}, {{0, 5, 0}, {0, 0, 0}}});
  EXPECT_EQ(positions(0), (Positions{0, 2}));
  EXPECT_EQ(positions(1), (Positions{1, 2}));
}

// 12 tokens, 4 of them the prompt, and room for 4 of the answer. Counts the first one dropped.
TEST_F(ScoreEviction, RandomDropsEachTokenOfTheAnswerAsOften) {
  constexpr int kLayers = 3000;
  CacheConfig config{.rule = RuleKind::random, .format = ops::EntryFormat::f32, .cr = 2.0};
  Cache cache(config, {.layers = kLayers, .kv_heads = 2, .head_dim = kHeadDim, .group = 1});
  SequenceCache sequence(cache, {.prompt_tokens = 4, .total_tokens = 12});
  std::vector<int> dropped(9);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int t = 0; t < 9; ++t) {
      for (int h = 0; h < 2; ++h) {
        const std::vector<float> key(kHeadDim, 0.0F);
        sequence.head(layer, h).append(sequence.rule(), Token{key, key});
      }
      evict_by_score({}, sequence, layer, {});
    }
    const SlotScores& slots = sequence.head(layer, 0).slots();
    ASSERT_EQ(slots.size(), 8U);
    std::vector<bool> held(9);
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      EXPECT_EQ(slots.position(slot), sequence.head(layer, 1).slots().position(slot));
      held[static_cast<std::size_t>(slots.position(slot))] = true;
    }
    dropped[static_cast<std::size_t>(std::ranges::find(held, false) - held.begin())] += 1;
  }
  for (int t = 0; t < 4; ++t) {
    EXPECT_EQ(dropped[static_cast<std::size_t>(t)], 0);
  }
  for (int t = 4; t < 9; ++t) {
    EXPECT_NEAR(dropped[static_cast<std::size_t>(t)], kLayers / 5, 100) << t;  // 4.5 sigma
  }
}

// A prompt shrinks to 1 / CR at its end, and so do the tables of entries and queries.
TEST_F(ScoreEviction, TablesShrinkWithWhatIsHeld) {
  constexpr int kTokens = 1000;
  for (const RuleKind rule : {RuleKind::snapkv, RuleKind::expected_attention}) {
    Cache cache({.rule = rule, .format = ops::EntryFormat::f32, .cr = 50.0},
                {.layers = 1, .kv_heads = 1, .head_dim = kHeadDim, .group = 1});
    SequenceCache sequence(cache, {.prompt_tokens = kTokens, .total_tokens = kTokens});
    std::vector<float> weights;
    for (int t = 0; t < kTokens; ++t) {
      const std::vector<float> key(kHeadDim, 0.0F);
      sequence.head(0, 0).append(sequence.rule(), Token{key, key});
      note_queries(sequence, 0, 0, key);
      weights.push_back(1.0F);
      const ops::DecodeRow row{nullptr, nullptr, {}, {}, weights.data()};
      evict_by_score({}, sequence, 0, {&row, 1});
    }
    const SlotScores& slots = sequence.head(0, 0).slots();
    EXPECT_EQ(slots.size(), 20U);
    EXPECT_LE(slots.bytes(), 2 * 20 * (sizeof(std::int32_t) + sizeof(float)));
    EXPECT_EQ(sequence.head(0, 0).query_statistics().capacity(), 0U);
  }
}

// 200 entries of 2,000: besides the window of 32 the mean is 168, and the last of 5 layers has a
// twentieth of it.
TEST_F(ScoreEviction, PyramidKvHoldsLessFromLayerToLayer) {
  const CacheConfig config{.rule = RuleKind::pyramidkv, .cr = 10.0};
  const auto budgets = [&](const CacheShape& shape, int prompt) {
    std::vector<int> result;
    for (int layer = 0; layer < shape.layers; ++layer) {
      result.push_back(Rule(config, {prompt, prompt}).of_layer(shape, layer).budget);
    }
    return result;
  };
  CacheShape shape{.layers = 5, .kv_heads = 1, .head_dim = kHeadDim, .group = 1};
  EXPECT_EQ(budgets(shape, 2000), (std::vector{360, 280, 200, 120, 40}));
  EXPECT_EQ(budgets(shape, 300), std::vector(5, 30));  // no more than the window
  shape.layers = 7;                                    // two of them slide and do not count
  shape.reach = {0, 4, 0, 0, 4, 0, 0};
  const auto some = budgets(shape, 2000);
  EXPECT_EQ((std::vector{some[0], some[2], some[3], some[5], some[6]}),
            (std::vector{360, 280, 200, 120, 40}));
}

TEST_F(ScoreEviction, BudgetOfOne) {
  for (const RuleKind rule : {RuleKind::tova, RuleKind::h2o}) {
    start(rule, 1);
    step({1});
    step({0.2F, 0.8F});
    EXPECT_EQ(positions(0).size(), 1U);
  }
}

}  // namespace
}  // namespace winnow::kvcache
