#include "ops/activation.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <vector>

#include "ops/activation_reference.h"
#include "ops/gradient_testing.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::activated;
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

TEST(ActivateMultiply, ScalesTheGateFirst) {
  const std::size_t rows = 3;
  const std::size_t cols = 33;
  const auto gate = normal(rows * cols, 1);
  const auto up = normal(rows * cols, 2);
  auto scaled = gate;
  scale({scaled.data(), rows, cols}, 0.7F);
  silu_multiply({scaled.data(), rows, cols}, {up.data(), rows, cols});
  auto at_once = gate;
  activate_multiply({.gate_scale = 0.7F}, {at_once.data(), rows, cols}, {up.data(), rows, cols});
  EXPECT_EQ(at_once, scaled);
  EXPECT_FALSE(GatedActivation{.gate_scale = 0.7F}.is_swiglu());
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
  for (const std::size_t repeat : {1U, 16U}) {  // in the rest of a row, and in vectors
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

constexpr Activation kActivations[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu,
                                       Activation::relu_squared};
constexpr GatedActivation kGatedActivations[] = {
    {Activation::silu},         {Activation::gelu_tanh},  {Activation::gelu},
    {Activation::relu_squared}, {Activation::silu, 2.0F}, {Activation::silu, 7.0F}};

void expect_definitions() {
  for (const Activation activation : kActivations) {
    for (const std::size_t cols : {1U, 7U, 16U, 33U, 100U, 5000U}) {
      for (const double spread : {0.1, 1.0, 30.0}) {
        const std::size_t rows = 4;
        auto x = normal(rows * cols, cols, spread);
        const auto before = x;
        activate(activation, {x.data(), rows, cols});
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double expected = activated(activation, before[i]);
          ASSERT_NEAR(x[i], expected, 1e-6 * std::abs(expected) + 4e-7) << before[i];
        }
      }
    }
  }
}

TEST(Activate, IsItsDefinition) {
  expect_definitions();
}

TEST(Activate, TakesAnySize) {
  for (const Activation activation : kActivations) {
    for (const std::size_t repeat : {1U, 16U}) {
      for (const float x : {0.0F, -0.0F, 1e-30F, 9.0F, -9.0F, 11.9F, -12.1F, 88.0F, -88.1F, 1e4F,
                            -1e4F, 1e18F, -3e38F}) {
        std::vector<float> values(repeat, x);
        std::vector<float> gradient(repeat, 1.0F);
        activate_backward(activation, {gradient.data(), 1, repeat}, {gradient.data(), 1, repeat},
                          {values.data(), 1, repeat});
        activate(activation, {values.data(), 1, repeat});
        const double expected = activated(activation, x);
        const bool squared = activation == Activation::relu_squared;
        for (std::size_t i = 0; i < repeat; ++i) {
          EXPECT_NEAR(values[i], expected, 1e-6 * std::abs(expected) + 4e-7) << x;
          EXPECT_TRUE(std::isfinite(gradient[i])) << x;
          if (std::abs(x) > 12.0F) {
            const double slope = squared ? 2.0 * double{x} : 1.0;
            EXPECT_NEAR(gradient[i], x > 0.0F ? slope : 0.0, 1e-3) << x;
          }
        }
      }
    }
  }
}

TEST(Activate, Backward) {
  for (const Activation activation : kActivations) {
    for (const std::size_t count : {1U, 7U, 16U, 33U, 100U}) {
      const testing::Values x = testing::draw(count, count, 2.0);
      const testing::Values dout = testing::draw(count, count + 1);
      const auto x_floats = testing::to_floats(x);
      std::vector<float> dx = testing::to_floats(dout);  // in place of dout
      activate_backward(activation, {dx.data(), 1, count}, {dx.data(), 1, count},
                        {x_floats.data(), 1, count});
      testing::expect_gradient(
          [&](const testing::Values& values) {
            double sum = 0.0;
            for (std::size_t i = 0; i < count; ++i) {
              sum += dout[i] * activated(activation, values[i]);
            }
            return sum;
          },
          x, dx);
    }
  }
}

void expect_gated_definitions() {
  for (const GatedActivation& activation : kGatedActivations) {
    for (const std::size_t cols : {1U, 7U, 16U, 33U, 100U, 5000U}) {
      for (const double spread : {0.1, 1.0, 30.0}) {
        const std::size_t rows = 4;
        auto gate = normal(rows * cols, cols, spread);
        const auto up = normal(rows * cols, cols + 1, spread);
        const auto before = gate;
        activate_multiply(activation, {gate.data(), rows, cols}, {up.data(), rows, cols});
        for (std::size_t i = 0; i < gate.size(); ++i) {
          const double expected = activated(activation, before[i], up[i]);
          const double tolerance = 1e-6 * std::abs(expected) + 4e-7 * (1.0 + std::abs(up[i]));
          ASSERT_NEAR(gate[i], expected, tolerance) << before[i] << ", " << up[i];
        }
      }
    }
  }
}

TEST(ActivateMultiply, IsItsDefinition) {
  expect_gated_definitions();
}

// All instruction sets that this machine supports, not only the best.
TEST(Activate, AnyInstructionSet) {
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & ~(rest - 1));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(rest & ~(rest - 1)));
    expect_definitions();
    expect_gated_definitions();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(ActivateMultiply, Backward) {
  for (const GatedActivation& activation : kGatedActivations) {
    for (const std::size_t count : {1U, 7U, 16U, 33U, 100U}) {
      // Wide enough that some values of each are clamped.
      const testing::Values gate = testing::draw(count, count, 4.0);
      const testing::Values up = testing::draw(count, count + 1, 4.0);
      const testing::Values dout = testing::draw(count, count + 2);
      const auto loss = [&](const testing::Values& g, const testing::Values& u) {
        double sum = 0.0;
        for (std::size_t i = 0; i < count; ++i) {
          sum += dout[i] * activated(activation, g[i], u[i]);
        }
        return sum;
      };
      const auto gate_floats = testing::to_floats(gate);
      const auto up_floats = testing::to_floats(up);
      std::vector<float> dgate(count);
      std::vector<float> dup = testing::to_floats(dout);  // in place of dout
      activate_multiply_backward(activation, {dgate.data(), 1, count}, {dup.data(), 1, count},
                                 {dup.data(), 1, count}, {gate_floats.data(), 1, count},
                                 {up_floats.data(), 1, count});
      testing::expect_gradient([&](const testing::Values& g) { return loss(g, up); }, gate, dgate);
      testing::expect_gradient([&](const testing::Values& u) { return loss(gate, u); }, up, dup);
    }
  }
}

TEST(SigmoidMultiply, IsItsDefinitionAndSoIsItsBackward) {
  const auto sigmoid = [](double z) { return 1.0 / (1.0 + std::exp(-z)); };
  for (const std::size_t count : {1U, 7U, 16U, 33U}) {
    const testing::Values x = testing::draw(count, 1);
    const testing::Values gate = testing::draw(count, 2, 3.0);
    const testing::Values dout = testing::draw(count, 3);
    const auto x_floats = testing::to_floats(x);
    const auto gate_floats = testing::to_floats(gate);
    auto out = x_floats;
    sigmoid_multiply({out.data(), 1, count}, {gate_floats.data(), 1, count});
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(out[i], x[i] * sigmoid(gate[i]), 1e-6);
    }
    auto dx = testing::to_floats(dout);  // in place of dout
    std::vector<float> dgate(count);
    sigmoid_multiply_backward({dx.data(), 1, count}, {dgate.data(), 1, count},
                              {dx.data(), 1, count}, {x_floats.data(), 1, count},
                              {gate_floats.data(), 1, count});
    const auto loss = [&](const testing::Values& a, const testing::Values& b) {
      double sum = 0.0;
      for (std::size_t i = 0; i < count; ++i) {
        sum += dout[i] * a[i] * sigmoid(b[i]);
      }
      return sum;
    };
    testing::expect_gradient([&](const testing::Values& a) { return loss(a, gate); }, x, dx);
    testing::expect_gradient([&](const testing::Values& b) { return loss(x, b); }, gate, dgate);
  }
}

TEST(Scale, MultipliesRowsOfAnyStride) {
  auto x = normal(30, 1, 1.0);
  const auto before = x;
  scale({x.data() + 1, 2, 4, 15}, 0.25F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t col = i % 15;
    const bool inside = col >= 1 && col < 5;
    EXPECT_EQ(x[i], inside ? 0.25F * before[i] : before[i]);
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
