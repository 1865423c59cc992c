#include "engine/keep_estimate.h"

#include <gtest/gtest.h>

namespace winnow::engine {
namespace {

CacheUsage usage(int tokens, std::size_t bytes) {
  CacheUsage usage;
  usage.tokens = tokens;
  usage.bytes = bytes;
  usage.live_entries = static_cast<std::int64_t>(bytes);
  return usage;
}

TEST(KeepEstimate, KnowsNothingAtFirst) {
  const KeepEstimate estimate;
  EXPECT_EQ(estimate.bytes_at(1000), 0.0);
  EXPECT_EQ(estimate.bytes_per_token(), 0.0);
  EXPECT_EQ(estimate.answer_tokens(), KeepEstimate::kFirstGuess);
}

TEST(KeepEstimate, OneLengthGivesAProportion) {
  KeepEstimate estimate;
  for (int i = 0; i < 5; ++i) {
    estimate.observe(usage(100, 2000));
  }
  EXPECT_NEAR(estimate.bytes_at(200), 4000, 1);
}

TEST(KeepEstimate, LearnsAWindowAndAShare) {
  KeepEstimate estimate;
  for (int i = 0; i < 40; ++i) {
    const int tokens = 100 + 97 * i % 1000;
    estimate.observe(usage(tokens, static_cast<std::size_t>(5000 + 3 * tokens)));
  }
  EXPECT_NEAR(estimate.bytes_at(4000), 17000, 10);
  EXPECT_NEAR(estimate.bytes_at(500), 6500, 10);
}

TEST(KeepEstimate, FollowsAModelThatChangesItsMind) {
  KeepEstimate estimate;
  for (int i = 0; i < 300; ++i) {
    const int tokens = 100 + 97 * i % 1000;
    estimate.observe(usage(tokens, static_cast<std::size_t>(tokens * (i < 50 ? 100 : 10))));
  }
  EXPECT_NEAR(estimate.bytes_at(1000), 10000, 1000);
}

TEST(KeepEstimate, AnswersAreAsLongAsTheyWere) {
  KeepEstimate estimate;
  estimate.observe_answer(20, true);
  EXPECT_LT(estimate.answer_tokens(), 300.0);
  for (int i = 0; i < 500; ++i) {
    estimate.observe_answer(20, true);
  }
  EXPECT_NEAR(estimate.answer_tokens(), 20.0, 1e-3);
}

// Half of the answers are cut at a limit of 10 tokens: they are only known to be longer.
TEST(KeepEstimate, AnswersThatMeetTheirLimitAreNotShort) {
  KeepEstimate estimate;
  estimate.observe_answer(10, false);
  EXPECT_GT(estimate.answer_tokens(), KeepEstimate::kFirstGuess);
  for (int i = 0; i < 500; ++i) {
    estimate.observe_answer(10, i % 2 == 0);
  }
  EXPECT_NEAR(estimate.answer_tokens(), 20.0, 0.5);
}

// Entries of 10 bytes in pages of 64 entries.
TEST(KeepEstimate, PagesDoNotHideTheSlope) {
  KeepEstimate estimate;
  for (int tokens = 65; tokens < 80; ++tokens) {
    CacheUsage pages = usage(tokens, 1280);
    pages.live_entries = tokens;
    estimate.observe(pages);
  }
  EXPECT_NEAR(estimate.bytes_per_token(), 1280.0 / 72.0, 0.2);
}

TEST(KeepEstimate, WhatRecurrentLayersKeepIsLeftOut) {
  KeepEstimate estimate;
  CacheUsage early = usage(10, 1'000'100);
  early.state_bytes = 1'000'000;
  estimate.observe(early);
  EXPECT_NEAR(estimate.bytes_at(20), 200.0, 1e-6);
}

}  // namespace
}  // namespace winnow::engine
