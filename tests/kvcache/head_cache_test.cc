// One head: the ring, its marks, the running average, and the pages that a step may take.
#include "kvcache/head_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"
#include "kvcache/sequence_cache.h"

namespace winnow::kvcache {
namespace {

constexpr int kDim = 8;
using Positions = std::vector<int>;

Rule dms(int window, int shift) {
  CacheConfig config;
  config.rule = RuleKind::dms;
  config.window = window;
  config.shift = shift;
  return Rule(config, {});
}

// DMS with a budget that leaves room for `archived` entries besides a full window.
Rule dms_budget(int window, int archived) {
  CacheConfig config;
  config.rule = RuleKind::dms_budget;
  config.window = window;
  config.shift = 0;
  return Rule(config, {.prompt_tokens = 1, .total_tokens = window + 1 + archived});
}

class Head : public ::testing::Test {
 protected:
  void start(const Rule& rule, ops::EntryFormat archive_format = ops::EntryFormat::f32) {
    rule_ = std::make_unique<Rule>(rule);
    archive_pool_ = std::make_unique<PagePool>(ops::PageLayout(archive_format, kDim), 1U << 20);
    head_ = std::make_unique<HeadCache>(*archive_pool_, window_pool_);
  }

  // Appends a token whose key is its position.
  void append(bool decision = false) {
    const std::vector<float> key(kDim, static_cast<float>(head_->length()));
    head_->append(*rule_, Token{key, key, decision, 1.0F});
  }

  // The same with the logit of the token's own decision, which keeps it.
  void append_with(float logit) {
    const std::vector<float> key(kDim, static_cast<float>(head_->length()));
    head_->append(*rule_, Token{.key = key, .value = key, .logit = logit});
  }

  static Positions positions(const EntryList& list) {
    Positions result;
    for (int i = 0; i < list.size(); ++i) {
      result.push_back(static_cast<int>(entry(list, i).front()));
    }
    std::ranges::sort(result);
    return result;
  }

  static std::vector<float> entry(const EntryList& list, int index) {
    std::vector<float> key(kDim);
    std::vector<float> value(kDim);
    const auto place = list.at(index);
    ops::load_entry(list.pool().layout(), place.page, place.slot, key, value);
    return key;
  }

  PagePool window_pool_{ops::PageLayout(ops::EntryFormat::f32, kDim), 1U << 20};
  std::unique_ptr<PagePool> archive_pool_;
  std::unique_ptr<Rule> rule_;
  std::unique_ptr<HeadCache> head_;
};

TEST_F(Head, TheRingHoldsTheLastOnes) {
  start(dms(19, 0));
  for (int t = 0; t < 100; ++t) {
    append(true);
    EXPECT_EQ(head_->live_entries(), std::min(t + 1, 20));
  }
  EXPECT_EQ(head_->archive().size(), 0);
  EXPECT_EQ(positions(head_->window()).front(), 80);
  for (int position = 80; position < 100; ++position) {
    std::vector<float> key(kDim);
    std::vector<float> value(kDim);
    head_->load_window(*rule_, position, key, value);
    EXPECT_EQ(key.front(), static_cast<float>(position));
  }
}

TEST_F(Head, KeptEntriesAreArchivedInOrder) {
  start(dms(2, 0));
  for (int t = 0; t < 10; ++t) {
    append(t % 3 == 0);  // marks 0, 3, 6, 9
  }
  EXPECT_EQ(positions(head_->window()), (Positions{7, 8, 9}));
  EXPECT_EQ(positions(head_->archive()), (Positions{1, 2, 4, 5}));
}

TEST_F(Head, AFullArchiveLosesTheHighestLogit) {
  start(dms_budget(1, 3));
  for (const float logit : {-3.0F, -1.0F, -2.0F, -5.0F, -9.0F}) {
    append_with(logit);
  }
  EXPECT_EQ(positions(head_->archive()), (Positions{0, 1, 2}));
  append_with(-0.5F);  // 3 replaces 1
  EXPECT_EQ(positions(head_->archive()), (Positions{0, 2, 3}));
  append_with(-0.1F);  // 4 replaces 2
  append_with(-7.0F);  // 5 itself has the highest logit
  EXPECT_EQ(positions(head_->archive()), (Positions{0, 3, 4}));
  EXPECT_EQ(positions(head_->window()), (Positions{6, 7}));
  append();  // and so does 6
  append();  // 7 replaces 0
  EXPECT_EQ(positions(head_->archive()), (Positions{3, 4, 7}));
}

TEST_F(Head, OfEqualLogitsTheOldestGoes) {
  start(dms_budget(0, 2));
  for (int t = 0; t < 6; ++t) {
    append_with(-1.0F);
    EXPECT_LE(head_->live_entries(), 3);
  }
  EXPECT_EQ(positions(head_->archive()), (Positions{3, 4}));
}

TEST_F(Head, WhatIsNoNumberGoesFirst) {
  start(dms_budget(0, 1));
  append_with(-1.0F);
  append_with(std::numeric_limits<float>::quiet_NaN());
  append_with(8.0F);
  append();
  EXPECT_EQ(positions(head_->archive()), (Positions{0}));
}

TEST_F(Head, ABudgetWithinTheWindowLeavesNoArchive) {
  start(dms_budget(4, -2));
  for (int t = 0; t < 20; ++t) {
    append();
  }
  EXPECT_EQ(head_->archive().size(), 0);
  EXPECT_EQ(positions(head_->window()), (Positions{15, 16, 17, 18, 19}));
}

TEST_F(Head, ShiftOneMarksTheKeyBefore) {
  start(dms(2, 1));
  for (int t = 0; t < 10; ++t) {
    append(t % 3 == 0);  // marks 2, 5, 8; no token before 0
  }
  EXPECT_EQ(positions(head_->archive()), (Positions{0, 1, 3, 4, 6}));
}

// The newest key has no decision yet; the next token decides just as the key leaves.
TEST_F(Head, ShiftOneWithoutAWindow) {
  start(dms(0, 1));
  append();
  append(true);  // evicts 0
  EXPECT_EQ(positions(head_->archive()), (Positions{}));
  append(false);  // keeps 1
  append(true);   // evicts 2
  append(true);   // evicts 3
  append(false);  // keeps 4
  EXPECT_EQ(positions(head_->archive()), (Positions{1, 4}));
  EXPECT_EQ(positions(head_->window()), (Positions{5}));
}

TEST_F(Head, ShiftZeroWithoutAWindow) {
  start(dms(0, 0));
  append(true);
  EXPECT_EQ(head_->live_entries(), 1);  // a query always sees its own key
  append(false);
  append(true);
  append(true);
  EXPECT_EQ(positions(head_->archive()), (Positions{1}));
  EXPECT_EQ(positions(head_->window()), (Positions{3}));
}

TEST_F(Head, AForkKeepsItsOwnMarks) {
  start(dms(1, 0));
  append(true);
  append(false);
  HeadCache fork(*head_);
  append(true);
  append(false);
  append(false);
  EXPECT_EQ(positions(head_->archive()), (Positions{1}));
  EXPECT_EQ(positions(fork.window()), (Positions{0, 1}));
  EXPECT_EQ(fork.archive().size(), 0);
  const std::vector<float> key(kDim, 7.0F);
  fork.append(*rule_, Token{key, key, false, 1.0F});
  EXPECT_EQ(positions(fork.window()), (Positions{1, 7}));
  EXPECT_EQ(positions(head_->window()), (Positions{3, 4}));
}

TEST_F(Head, StreamingKeepsTheSinks) {
  CacheConfig config;
  config.rule = RuleKind::streaming;
  config.sinks = 2;
  start(Rule(config, {.prompt_tokens = 0, .total_tokens = 5}));
  for (int t = 0; t < 20; ++t) {
    append();
    EXPECT_LE(head_->live_entries(), 5);
  }
  EXPECT_EQ(positions(head_->archive()), (Positions{0, 1}));
  EXPECT_EQ(positions(head_->window()), (Positions{17, 18, 19}));
}

TEST_F(Head, DroppedSlotsLeaveNoHole) {
  CacheConfig config;
  config.rule = RuleKind::tova;
  start(Rule(config, {.prompt_tokens = 0, .total_tokens = 40}));
  for (int t = 0; t < 17; ++t) {
    append();
  }
  EXPECT_EQ(archive_pool_->live_pages(), 2U);
  head_->drop_slot(3);
  EXPECT_EQ(archive_pool_->live_pages(), 1U);
  EXPECT_EQ(entry(head_->archive(), 3).front(), 16.0F);
  EXPECT_EQ(head_->slots().position(3), 16);
  head_->drop_slot(15);  // the last one itself
  EXPECT_EQ(positions(head_->archive()),
            (Positions{0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16}));
}

// Section 2: an entry is the average of its segment, weighted by omega.
TEST_F(Head, MergedEntriesAreTheAverageOfTheirSegment) {
  CacheConfig config;
  config.rule = RuleKind::dmc;
  start(Rule(config, {}), ops::EntryFormat::f32);
  Random random(3);
  std::vector<double> sum(kDim, 0.0);
  double weight = 0.0;
  std::vector<std::vector<double>> averages;
  for (int t = 0; t < 500; ++t) {
    std::vector<float> key(kDim);
    std::ranges::generate(key, [&] { return static_cast<float>(random.normal()); });
    const bool merge = random.uniform() < 0.9;  // may be true at position 0, which still appends
    const float omega = 0.01F + static_cast<float>(random.uniform());
    if (t == 0 || !merge) {
      std::ranges::fill(sum, 0.0);
      weight = 0.0;
      averages.emplace_back();
    }
    weight += omega;
    std::ranges::transform(sum, key, sum.begin(),
                           [omega](double s, float k) { return s + double{omega} * k; });
    averages.back() = sum;
    std::ranges::transform(sum, averages.back().begin(), [&](double s) { return s / weight; });
    std::vector<float> seen_key(kDim);
    std::vector<float> seen_value(kDim);
    head_->append(*rule_, Token{key, key, merge, omega}, seen_key, seen_value);
    EXPECT_EQ(head_->live_entries(), static_cast<int>(averages.size()));
    for (std::size_t d = 0; d < kDim; ++d) {
      ASSERT_NEAR(seen_key[d], averages.back()[d], 3e-6);
      ASSERT_EQ(seen_key[d], seen_value[d]);
    }
  }
  ASSERT_GT(averages.size(), 20U);
  for (std::size_t i = 0; i + 1 < averages.size(); ++i) {
    const auto closed = entry(head_->archive(), static_cast<int>(i));
    for (std::size_t d = 0; d < kDim; ++d) {
      ASSERT_NEAR(closed[d], averages[i][d], 3e-6);
    }
  }
}

TEST_F(Head, TheOpenEntryIsRoundedOnlyWhenItCloses) {
  CacheConfig config;
  config.rule = RuleKind::dmc;
  start(Rule(config, {}), ops::EntryFormat::bf16);
  const std::vector<float> key(kDim, 1.0F + 0x1p-20F);
  head_->append(*rule_, Token{key, key, false, 1.0F});
  EXPECT_EQ(entry(head_->window(), 0), key);
  head_->append(*rule_, Token{key, key, true, 1.0F});
  EXPECT_EQ(entry(head_->window(), 0), key);
  head_->append(*rule_, Token{key, key, false, 1.0F});
  EXPECT_EQ(entry(head_->archive(), 0), std::vector<float>(kDim, 1.0F));
}

TEST_F(Head, WeightlessTokensGiveNumbers) {
  CacheConfig config;
  config.rule = RuleKind::dmc;
  start(Rule(config, {}));
  const std::vector<float> key(kDim, 2.0F);
  head_->append(*rule_, Token{key, key, false, 0.0F});
  head_->append(*rule_, Token{key, key, true, 0.0F});
  EXPECT_EQ(entry(head_->window(), 0), key);
}

TEST_F(Head, PageNeedIsExactForADenseHead) {
  start(Rule(CacheConfig{}, {}));
  EXPECT_EQ(head_->page_need(*rule_, 1).archive, 1U);
  EXPECT_EQ(head_->page_need(*rule_, 33).archive, 3U);
  for (int t = 0; t < 16; ++t) {
    append();
  }
  EXPECT_EQ(head_->page_need(*rule_, 0).archive, 0U);
  EXPECT_EQ(head_->page_need(*rule_, 1).archive, 1U);
  append();
  EXPECT_EQ(head_->page_need(*rule_, 15).archive, 0U);
  EXPECT_EQ(head_->page_need(*rule_, 16).archive, 1U);
  const HeadCache fork(*head_);  // shares the last page, which must be copied
  EXPECT_EQ(head_->page_need(*rule_, 15).archive, 1U);
  EXPECT_EQ(fork.page_need(*rule_, 16).archive, 2U);
}

}  // namespace
}  // namespace winnow::kvcache
