#include "ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace winnow::ops {
namespace {

std::vector<float> normal(std::size_t count, std::uint64_t seed, double spread) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(spread * random.normal());
  }
  return values;
}

TEST(SiluMultiply, IsItsDefinition) {
  for (const std::size_t cols : {1U, 7U, 16U, 33U, 100U, 5000U}) {
    for (const double spread : {0.1, 1.0, 30.0}) {
      const std::size_t rows = 4;
      auto gate = normal(rows * cols, cols, spread);
      const auto up = normal(rows * cols, cols + 1, 1.0);
      const auto before = gate;
      silu_multiply({gate.data(), rows, cols}, {up.data(), rows, cols});
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const double x = before[i];
        const double expected = x / (1.0 + std::exp(-x)) * up[i];
        ASSERT_NEAR(gate[i], expected, 1e-6 * std::abs(expected) + 1e-12) << "silu of " << x;
      }
    }
  }
}

TEST(SiluMultiply, TakesAnySize) {
  const std::vector<float> sizes = {0.0F,    88.0F,   89.0F,   100.0F,  1e4F,   3e38F,
                                    1e-30F,  -87.9F,  -88.0F,  -88.1F,  -89.0F, -100.0F,
                                    -104.0F, -177.9F, -178.7F, -200.0F, -1e4F,  -3e38F};
  for (const std::size_t repeat : {1U, 16U}) {  // in the rest of a row and in vectors
    for (const float x : sizes) {
      std::vector<float> gate(repeat, x);
      const std::vector<float> up(repeat, 1.0F);
      silu_multiply({gate.data(), 1, repeat}, {up.data(), 1, repeat});
      const double expected = double{x} / (1.0 + std::exp(-double{x}));
      for (const float y : gate) {
        EXPECT_NEAR(y, expected, 1e-6 * std::abs(expected) + 1e-20) << "silu of " << x;
      }
    }
  }
}

TEST(Add, AddsRowsOfAnyStride) {
  auto x = normal(30, 1, 1.0);
  const auto y = normal(8, 2, 1.0);
  const auto before = x;
  add({x.data() + 1, 2, 4, 15}, {y.data(), 2, 4});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / 15;
    const std::size_t col = i % 15;
    const bool inside = col >= 1 && col < 5;
    EXPECT_EQ(x[i], inside ? before[i] + y[row * 4 + col - 1] : before[i]);
  }
}

}  // namespace
}  // namespace winnow::ops
