// Finite differences in double, for tests of backward ops.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "base/random.h"

namespace winnow::ops::testing {

using Values = std::vector<double>;

/// Numbers that float represents exactly, so that op and reference have the same inputs.
inline Values draw(std::size_t count, std::uint64_t seed, double spread = 1.0) {
  Random random(seed);
  Values values(count);
  std::ranges::generate(values,
                        [&] { return double{static_cast<float>(spread * random.normal())}; });
  return values;
}

inline std::vector<float> to_floats(const Values& values) {
  return {values.begin(), values.end()};
}

/// Checks `gradient` of loss(x) against central differences, to `tolerance` of its largest element,
/// or of 0.02 if all are smaller: operands are about 1, so cancelling sums leave rounding errors.
inline void expect_gradient(const std::function<double(const Values&)>& loss, Values x,
                            std::span<const float> gradient, double tolerance = 2e-5) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  Values expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + kStep;
    const double above = loss(x);
    x[i] = before - kStep;
    const double below = loss(x);
    x[i] = before;
    expected[i] = (above - below) / (2.0 * kStep);
  }
  double largest = 0.02;
  for (const double g : expected) {
    largest = std::max(largest, std::abs(g));
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(gradient[i], expected[i], tolerance * largest) << "at " << i;
  }
}

}  // namespace winnow::ops::testing
