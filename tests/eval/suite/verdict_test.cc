#include "eval/suite/verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace winnow::eval {
namespace {

TEST(StudentQuantile, IsThatOfTheTables) {
  // One-sided 95 % quantiles from printed tables.
  EXPECT_NEAR(student_quantile(1), 6.3138, 1e-4);
  EXPECT_NEAR(student_quantile(2), 2.9200, 1e-4);
  EXPECT_NEAR(student_quantile(3), 2.3534, 5e-3);
  EXPECT_NEAR(student_quantile(4), 2.1318, 2e-3);
  EXPECT_NEAR(student_quantile(9), 1.8331, 1e-4);
  EXPECT_NEAR(student_quantile(30), 1.6973, 1e-4);
  EXPECT_NEAR(student_quantile(1e9), 1.6449, 1e-4);
}

TEST(IntervalOfAMean, HasNoBoundForOneValue) {
  Mean mean;
  mean.add(3.0);
  EXPECT_EQ(interval_of(mean.estimate()).high, std::numeric_limits<double>::infinity());
  mean.add(5.0);  // 4 +- 1
  EXPECT_NEAR(interval_of(mean.estimate()).high, 4.0 + 6.3138, 1e-3);
  EXPECT_NEAR(interval_of(mean.estimate()).low, 4.0 - 6.3138, 1e-3);
}

TEST(IntervalOfAnswers, IsNotEmptyWhereAllAgree) {
  const Interval interval = interval_of(PairedCounts{100, 0, 0});
  const double z2 = 1.6448536269514722 * 1.6448536269514722;
  EXPECT_NEAR(interval.high, z2 / (100 + z2), 1e-9);
  EXPECT_NEAR(interval.low, -z2 / (100 + z2), 1e-9);
}

TEST(IntervalOfAnswers, IsSymmetricAndNarrowsLikeTheRootOfTheSize) {
  const Interval one = interval_of(PairedCounts{200, 12, 5});
  const Interval other = interval_of(PairedCounts{200, 5, 12});
  EXPECT_NEAR(one.low, -other.high, 1e-9);
  EXPECT_NEAR(one.high, -other.low, 1e-9);
  // Close to the usual normal interval for many questions: 0.035 +- 1.645 sqrt(17 - 49/200)/200.
  const Interval many = interval_of(PairedCounts{20000, 1200, 500});
  const double error = std::sqrt(1700.0 - 700.0 * 700.0 / 20000.0) / 20000.0;
  EXPECT_NEAR(many.high, 0.035 + 1.645 * error, 1e-4);
  EXPECT_NEAR(many.low, 0.035 - 1.645 * error, 1e-4);
}

TEST(IntervalOfAnswers, IsUnboundedWithoutQuestionsAndInRangeWhereAllDiffer) {
  EXPECT_EQ(interval_of(PairedCounts{}).low, -std::numeric_limits<double>::infinity());
  const Interval all = interval_of(PairedCounts{10, 10, 0});
  EXPECT_NEAR(all.high, 1.0, 1e-9);
  const double odds = 1.6448536 * 1.6448536 / 10;  // (1 - low) / (1 + low), solved by hand
  EXPECT_NEAR(all.low, (1 - odds) / (1 + odds), 1e-6);
}

TEST(Decide, AtItsEdges) {
  EXPECT_EQ(decide({-0.1, 0.01}, 0.01), Verdict::holds);
  EXPECT_EQ(decide({-0.1, std::nextafter(0.01, 1.0)}, 0.01), Verdict::undecided);
  EXPECT_EQ(decide({0.01, 0.2}, 0.01), Verdict::undecided);
  EXPECT_EQ(decide({std::nextafter(0.01, 1.0), 0.2}, 0.01), Verdict::loses);
  EXPECT_EQ(decide({-0.3, -0.2}, 0.01), Verdict::holds);  // a gain
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(decide({-infinity, infinity}, 0.01), Verdict::undecided);
}

// A small sample without any difference does not exclude a loss.
TEST(Decide, DoesNotHoldBecauseNothingWasSeen) {
  EXPECT_EQ(decide(interval_of(PairedCounts{20, 0, 0}), 0.01), Verdict::undecided);
  EXPECT_EQ(decide(interval_of(PairedCounts{267, 0, 0}), 0.01), Verdict::undecided);
  EXPECT_EQ(decide(interval_of(PairedCounts{268, 0, 0}), 0.01), Verdict::holds);
}

TEST(MissingValues, AreJustEnough) {
  const PairedCounts small{20, 0, 0};
  EXPECT_EQ(missing_values(small, 0.01), 248);
  // A loss of 5 % that is not yet significant.
  const PairedCounts losing{40, 3, 1};
  const auto more = missing_values(losing, 0.01);
  ASSERT_TRUE(more.has_value());
  const auto scaled = [&](double size) {
    return decide(interval_of(PairedCounts{size, 3 * size / 40, 1 * size / 40}), 0.01);
  };
  const double size = 40.0 + static_cast<double>(*more);
  EXPECT_EQ(scaled(size), Verdict::loses);
  EXPECT_EQ(scaled(size - 1), Verdict::undecided);
  // A loss equal to the criterion can never be decided.
  EXPECT_EQ(missing_values(PairedCounts{100, 1, 0}, 0.01), std::nullopt);
  EXPECT_EQ(missing_values(PairedCounts{}, 0.01), std::nullopt);
}

TEST(MissingValues, OfAMean) {
  const Estimate loss{.mean = 0.0, .error = 1.0, .count = 4};  // standard deviation 2
  const auto more = missing_values(loss, 0.1);
  ASSERT_TRUE(more.has_value());
  EXPECT_NEAR(static_cast<double>(*more + 4), std::pow(1.645 * 2.0 / 0.1, 2), 5.0);
  EXPECT_EQ(missing_values(Estimate{.mean = 0.1, .error = 1.0, .count = 4}, 0.1), std::nullopt);
  EXPECT_EQ(missing_values(Estimate{.mean = 0.0, .count = 1}, 0.1), std::nullopt);
}

}  // namespace
}  // namespace winnow::eval
