#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "base/threads.h"

namespace winnow::train {
namespace {

std::vector<float> optimizer_values(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(random.normal()); });
  return values;
}

TEST(AdamW, FollowsItsDefinition) {
  constexpr std::size_t kCount = 5;
  const AdamWOptions options{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3};
  AdamW optimizer(options, kCount);
  std::vector<float> values = optimizer_values(kCount, 1);
  std::vector<double> expected(values.begin(), values.end());
  std::vector<double> m(kCount);
  std::vector<double> v(kCount);
  for (int step = 1; step <= 7; ++step) {
    const auto gradients = optimizer_values(kCount, 10 + static_cast<std::uint64_t>(step));
    const double rate = 0.1 / step;
    optimizer.apply({0, kCount, step, rate, 0.3, 0.5}, values, gradients);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double g = 0.5 * gradients[i];
      m[i] = 0.8 * m[i] + 0.2 * g;
      v[i] = 0.9 * v[i] + 0.1 * g * g;
      const double m_hat = m[i] / (1.0 - std::pow(0.8, step));
      const double v_hat = v[i] / (1.0 - std::pow(0.9, step));
      expected[i] -= rate * (m_hat / (std::sqrt(v_hat) + 1e-3) + 0.3 * expected[i]);
      EXPECT_NEAR(values[i], expected[i], 1e-5) << "step " << step << " at " << i;
    }
  }
}

TEST(AdamW, LeavesTheRestAlone) {
  AdamW optimizer({}, 4);
  std::vector<float> values{1, 1, 1, 1};
  const std::vector<float> gradients{1, 1, 1, 1};
  optimizer.apply({1, 3, 1, 0.5, 0.0, 1.0}, values, gradients);
  EXPECT_EQ(values[0], 1.0F);
  EXPECT_LT(values[1], 0.6F);
  EXPECT_LT(values[2], 0.6F);
  EXPECT_EQ(values[3], 1.0F);
}

TEST(AdamW, TheSameBitsOnAnyNumberOfThreads) {
  constexpr std::size_t kCount = 100'000;
  const auto gradients = optimizer_values(kCount, 2);
  const auto run = [&](int threads) {
    set_threads(threads);
    AdamW optimizer({}, kCount);
    auto values = optimizer_values(kCount, 1);
    optimizer.apply(
        {0, kCount, 1, 0.1, 0.1, clip_factor(std::sqrt(sum_of_squares(gradients)), 1.0)}, values,
        gradients);
    return values;
  };
  const auto one = run(1);
  EXPECT_EQ(run(3), one);
  set_threads(0);
}

TEST(SumOfSquares, IsThat) {
  const auto x = optimizer_values(50'000, 3);
  const double expected = std::transform_reduce(x.begin(), x.end(), 0.0, std::plus<>(),
                                                [](float v) { return double{v} * v; });
  EXPECT_NEAR(sum_of_squares(x), expected, 1e-6 * expected);
  EXPECT_EQ(sum_of_squares({}), 0.0);
}

TEST(ClipFactor, OnlyEverShrinks) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace winnow::train
