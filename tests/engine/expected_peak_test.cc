#include "engine/expected_peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace winnow::engine {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The peak by its definition: evaluated at every token.
double slow_peak(const std::vector<Growing>& sequences, double bytes_per_token, double answer) {
  double peak = 0.0;
  for (int t = 0; t <= 300; ++t) {
    double bytes = 0.0;
    for (const Growing& sequence : sequences) {
      if (sequence.limit >= t) {
        bytes += std::exp(-t / answer) * sequence.count * (sequence.bytes + bytes_per_token * t);
      }
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

TEST(ExpectedPeak, OfSequencesThatEndTogetherIsTheirSum) {
  EXPECT_EQ(expected_peak({{100.0, 50}, {100.0, 50}}, 2.0, kInfinite), 400.0);
}

TEST(ExpectedPeak, OfSequencesThatEndOneAfterAnotherIsLess) {
  // When the first one ends: 180 + 2 * 10, and 100 + 2 * 10.
  EXPECT_EQ(expected_peak({{180.0, 10}, {100.0, 50}}, 2.0, kInfinite), 320.0);
}

TEST(ExpectedPeak, IsNowWhereAnswersEndFasterThanTheyGrow) {
  EXPECT_EQ(expected_peak({{100.0, 1000, 10}}, 1.0, 50.0), 1000.0);
}

TEST(ExpectedPeak, OfNothingKnownIsNothing) {
  EXPECT_EQ(expected_peak({{0.0, 10}, {0.0, 20}}, 0.0, kInfinite), 0.0);
  EXPECT_EQ(expected_peak({}, 1.0, kInfinite), 0.0);
}

TEST(ExpectedPeak, IsTheMostOfAllTimes) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Growing> sequences;
    for (int i = 0; i < 1 + round % 9; ++i) {
      sequences.push_back({200.0 * random.uniform(), static_cast<int>(random.bits() % 300),
                           1 + static_cast<int>(random.bits() % 3)});
    }
    const double per_token = round % 10 == 0 ? 0.0 : 3.0 * random.uniform();
    const double answer = round % 3 == 0 ? kInfinite : 10.0 + 300.0 * random.uniform();
    const double slow = slow_peak(sequences, per_token, answer);
    const double fast = expected_peak(sequences, per_token, answer);
    EXPECT_GE(fast, slow * (1.0 - 1e-12));
    EXPECT_LE(fast, slow * 1.001);  // the peak may be between two tokens
  }
}

}  // namespace
}  // namespace winnow::engine
