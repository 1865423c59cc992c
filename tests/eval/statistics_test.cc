#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace winnow::eval {
namespace {

TEST(Mean, OfNothingAndOfOne) {
  EXPECT_EQ(Mean().estimate().mean, 0.0);
  Mean one;
  one.add(3.0);
  EXPECT_EQ(one.estimate().mean, 3.0);
  EXPECT_TRUE(std::isnan(one.estimate().error));
}

TEST(Mean, HasTheStandardErrorOfTheTextbooks) {
  Mean mean;
  for (const double x : {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}) {
    mean.add(x);
  }
  EXPECT_DOUBLE_EQ(mean.estimate().mean, 5.0);
  EXPECT_EQ(mean.estimate().count, 8);
  EXPECT_DOUBLE_EQ(mean.estimate().error, std::sqrt(32.0 / 7.0 / 8.0));
}

TEST(RatioMean, WeighsPiecesByTheirTokens) {
  RatioMean mean;
  mean.add(10.0, 10);
  EXPECT_TRUE(std::isnan(mean.estimate().error));
  mean.add(90.0, 30);
  mean.add(5.0, 0);  // no tokens
  EXPECT_DOUBLE_EQ(mean.estimate().mean, 2.5);
  // Deviations 10 - 25 = -15 and 90 - 75 = 15; error = sqrt(2/1 * 450) / 40.
  EXPECT_DOUBLE_EQ(mean.estimate().error, 30.0 / 40.0);
}

TEST(RatioMean, EqualPiecesGiveTheErrorOfTheirMeans) {
  RatioMean ratio;
  Mean mean;
  for (const double x : {1.0, 2.5, 0.5, 4.0}) {
    ratio.add(20.0 * x, 20);
    mean.add(x);
  }
  EXPECT_NEAR(ratio.estimate().mean, mean.estimate().mean, 1e-12);
  EXPECT_NEAR(ratio.estimate().error, mean.estimate().error, 1e-12);
}

}  // namespace
}  // namespace winnow::eval
