#include "ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/gradient_testing.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

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

TEST(SiluMultiply, Backward) {
  for (const std::size_t count : {1U, 7U, 16U, 33U, 100U}) {
    for (const double spread : {1.0, 8.0}) {
      const testing::Values gate = testing::draw(count, count, spread);
      const testing::Values up = testing::draw(count, count + 1);
      const testing::Values dout = testing::draw(count, count + 2);
      const auto loss = [&dout](const testing::Values& g, const testing::Values& u) {
        double sum = 0.0;
        for (std::size_t i = 0; i < g.size(); ++i) {
          sum += dout[i] * g[i] / (1.0 + std::exp(-g[i])) * u[i];
        }
        return sum;
      };
      const auto gate_floats = testing::to_floats(gate);
      const auto up_floats = testing::to_floats(up);
      std::vector<float> dgate = testing::to_floats(dout);  // in place of dout
      std::vector<float> dup(count);
      silu_multiply_backward({dgate.data(), 1, count}, {dup.data(), 1, count},
                             {dgate.data(), 1, count}, {gate_floats.data(), 1, count},
                             {up_floats.data(), 1, count});
      testing::expect_gradient([&](const testing::Values& g) { return loss(g, up); }, gate, dgate);
      testing::expect_gradient([&](const testing::Values& u) { return loss(gate, u); }, up, dup);
    }
  }
}

TEST(SiluMultiply, BackwardOfAnySizeIsFinite) {
  for (const float x : {0.0F, 88.0F, 1e4F, 3e38F, -87.9F, -88.1F, -104.0F, -178.7F, -3e38F}) {
    for (const std::size_t count : {1U, 16U}) {
      const std::vector<float> gate(count, x);
      const std::vector<float> ones(count, 1.0F);
      std::vector<float> dgate(count);
      std::vector<float> dup(count);
      silu_multiply_backward({dgate.data(), 1, count}, {dup.data(), 1, count},
                             {ones.data(), 1, count}, {gate.data(), 1, count},
                             {ones.data(), 1, count});
      EXPECT_NEAR(dgate[0], x > 0.0F ? 1.0 : 0.0, x == 0.0F ? 0.5 : 1e-6) << x;
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
