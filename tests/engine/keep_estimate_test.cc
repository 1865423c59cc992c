#include "engine/keep_estimate.h"

#include <gtest/gtest.h>

namespace winnow::engine {
namespace {

CacheUsage usage(int tokens, std::size_t bytes) {
  CacheUsage usage;
  usage.tokens = tokens;
  usage.bytes = bytes;
  return usage;
}

TEST(KeepEstimate, KnowsNothingAtFirst) {
  const KeepEstimate estimate;
  EXPECT_EQ(estimate.bytes_at(1000), 0.0);
  EXPECT_EQ(estimate.answer_tokens(70), 70);
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
  for (int i = 0; i < 10; ++i) {
    estimate.observe_answer(20);
  }
  EXPECT_EQ(estimate.answer_tokens(4000), 20);
  EXPECT_EQ(estimate.answer_tokens(5), 5);
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
