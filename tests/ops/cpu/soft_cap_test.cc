#include "ops/soft_cap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/gradient_testing.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

TEST(SoftCap, IsItsDefinition) {
  for (const std::size_t cols : {1U, 7U, 16U, 33U, 5000U}) {
    for (const float cap : {0.5F, 30.0F, 50.0F}) {
      const std::size_t rows = 5;
      auto x = normal(rows * cols, cols, 40.0);
      const auto before = x;
      soft_cap({x.data(), rows, cols}, cap);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double expected = double{cap} * std::tanh(double{before[i]} / double{cap});
        ASSERT_NEAR(x[i], expected, 1e-6 * std::abs(expected)) << before[i];
      }
    }
  }
}

TEST(SoftCap, TakesAnySize) {
  for (const std::size_t repeat : {1U, 16U}) {
    for (const float x : {0.0F, 1e-30F, 1e4F, -1e4F, 3e38F, -3e38F}) {
      std::vector<float> values(repeat, x);
      soft_cap({values.data(), 1, repeat}, 50.0F);
      for (const float y : values) {
        EXPECT_NEAR(y, 50.0 * std::tanh(double{x} / 50.0), 1e-6 * std::abs(double{y})) << x;
      }
    }
  }
}

TEST(SoftCap, KeepsToItsColumnsOfAWiderMatrix) {
  auto x = normal(30, 1, 1.0);
  const auto before = x;
  soft_cap({x.data() + 1, 2, 4, 15}, 0.1F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool inside = i % 15 >= 1 && i % 15 < 5;
    EXPECT_EQ(x[i] == before[i], !inside) << i;
  }
}

TEST(SoftCap, Backward) {
  constexpr double kCap = 2.0;
  for (const std::size_t count : {1U, 7U, 16U, 33U, 100U}) {
    const testing::Values x = testing::draw(count, count, 2.0);
    const testing::Values dout = testing::draw(count, count + 1);
    auto capped = testing::to_floats(x);
    soft_cap({capped.data(), 1, count}, static_cast<float>(kCap));
    auto dx = testing::to_floats(dout);
    soft_cap_backward({dx.data(), 1, count}, {capped.data(), 1, count}, static_cast<float>(kCap));
    testing::expect_gradient(
        [&](const testing::Values& values) {
          double sum = 0.0;
          for (std::size_t i = 0; i < count; ++i) {
            sum += dout[i] * kCap * std::tanh(values[i] / kCap);
          }
          return sum;
        },
        x, dx);
  }
}

}  // namespace
}  // namespace winnow::ops
