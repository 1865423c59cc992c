#include "ops/log_sum_exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/random_values.h"

namespace winnow::ops {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

double log_sum_exp_by_definition(std::span<const float> x) {
  double sum = 0.0;
  for (const float value : x) {
    sum += std::exp(double{value});
  }
  return std::log(sum);
}

TEST(LogSumExp, IsItsDefinition) {
  for (const std::size_t size : {1U, 7U, 16U, 33U, 257U, 5000U, 151936U}) {
    for (const double deviation : {0.0, 0.01, 1.0, 8.0}) {
      auto x = testing::normal(size, size, deviation);
      EXPECT_NEAR(log_sum_exp(x), log_sum_exp_by_definition(x), 2e-6) << size << " " << deviation;
      x[size / 2] = 40.0F;
      EXPECT_NEAR(log_sum_exp(x), log_sum_exp_by_definition(x), 2e-6) << size << " " << deviation;
      x[0] = -kInfinite;
      x[size - 1] = 1.0F;
      EXPECT_NEAR(log_sum_exp(x), log_sum_exp_by_definition(x), 2e-6) << size << " " << deviation;
    }
  }
}

TEST(LogSumExp, TakesLargeAndSmallNumbers) {
  for (const std::size_t size : {1U, 40U}) {
    for (const float x : {-3e38F, -1e4F, 1e4F, 3e38F}) {
      const std::vector<float> values(size, x);
      EXPECT_DOUBLE_EQ(log_sum_exp(values), double{x} + std::log(static_cast<double>(size)));
    }
  }
}

TEST(LogSumExp, IsNaNWithoutADistribution) {
  for (const std::size_t size : {1U, 16U, 40U, 300U}) {
    EXPECT_TRUE(std::isnan(log_sum_exp(std::vector<float>(size, -kInfinite))));
    for (const float x : {kInfinite, std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::size_t place : {std::size_t{0}, size / 2, size - 1}) {
        std::vector<float> values(size, 1.0F);
        values[place] = x;
        EXPECT_TRUE(std::isnan(log_sum_exp(values))) << size << " " << place << " " << x;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::ops
