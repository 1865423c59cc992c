#include "kvcache/drawn_decisions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace winnow::kvcache {
namespace {

constexpr int kLayers = 16;
constexpr int kHeads = 8;

std::vector<double> kept_shares(const DrawnDecisions& drawn) {
  std::vector<double> shares;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      shares.push_back(1.0 - drawn.rate_of(layer, head));
    }
  }
  return shares;
}

double mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double x : values) {
    sum += x;
  }
  return sum / static_cast<double>(values.size());
}

TEST(DrawnDecisions, HeadsAreAlikeWithoutSpread) {
  for (const double share : kept_shares({.rate = 0.7})) {
    EXPECT_DOUBLE_EQ(share, 0.3);
  }
}

TEST(DrawnDecisions, SpreadCoversItsRangeAndKeepsTheMean) {
  const auto shares = kept_shares({.rate = 0.8, .spread = 0.5});
  EXPECT_NEAR(std::ranges::min(shares), 0.1, 0.005);
  EXPECT_NEAR(std::ranges::max(shares), 0.3, 0.005);
  EXPECT_NEAR(mean(shares), 0.2, 0.002);
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto first = shares.begin() + layer * kHeads;
    const std::vector<double> heads(first, first + kHeads);
    EXPECT_NEAR(mean(heads), 0.2, 0.03) << "layer " << layer;
    EXPECT_GT(std::ranges::max(heads) - std::ranges::min(heads), 0.12) << "layer " << layer;
  }
}

TEST(DrawnDecisions, FlipsAreAsOftenAsTheirRate) {
  const DrawnDecisions drawn{.rate = 0.6, .spread = 1.0};
  constexpr int kPositions = 4000;
  for (int head = 0; head < kHeads; ++head) {
    int flips = 0;
    for (int position = 0; position < kPositions; ++position) {
      flips += drawn(position, 3, head) ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(flips) / kPositions, drawn.rate_of(3, head), 0.035);
  }
}

}  // namespace
}  // namespace winnow::kvcache
