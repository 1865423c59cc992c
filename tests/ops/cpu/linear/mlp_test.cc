#include "ops/mlp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/activation_reference.h"
#include "ops/amx_packed_weights.h"
#include "ops/cpu/skip_reasons.h"
#include "ops/owned_weight.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::OwnedWeight;
using testing::row_of;

constexpr std::size_t kMlpWidth = 64;
constexpr std::size_t kMlpInner = 96;
constexpr GatedActivation kGated[] = {{Activation::gelu_tanh},
                                      {Activation::gelu},
                                      {Activation::relu_squared},
                                      {Activation::silu, 3.0F}};

double product(std::span<const float> row, std::span<const double> x) {
  double sum = 0.0;
  for (std::size_t k = 0; k < row.size(); ++k) {
    sum += static_cast<double>(row[k]) * x[k];
  }
  return sum;
}

/// The term that one input adds, in double.
std::vector<double> reference(const MlpWeights& mlp, std::span<const float> input) {
  const std::vector<double> x(input.begin(), input.end());
  std::vector<double> inner(kMlpInner);
  for (std::size_t i = 0; i < kMlpInner; ++i) {
    const double up = product(row_of(*mlp.up, i), x) + mlp.up_bias[i];
    if (mlp.gate == nullptr) {
      inner[i] = testing::activated(mlp.activation.kind, up);
    } else {
      const double gate = product(row_of(*mlp.gate, i), x) + mlp.gate_bias[i];
      inner[i] = testing::activated(mlp.activation, gate, up);
    }
  }
  std::vector<double> out(kMlpWidth);
  for (std::size_t n = 0; n < kMlpWidth; ++n) {
    out[n] = product(row_of(*mlp.down, n), inner) + mlp.down_bias[n];
  }
  return out;
}

/// Inputs of one to three passes of a kernel, in whole tiles and not.
void expect_mlp(DType compute, bool tiled, double tolerance, const GatedActivation& activation = {},
                bool has_gate = true) {
  const OwnedWeight gate(WeightFormat::bf16, kMlpInner, kMlpWidth, 1);
  const OwnedWeight up(WeightFormat::bf16, kMlpInner, kMlpWidth, 2);
  const OwnedWeight down(WeightFormat::bf16, kMlpWidth, kMlpInner, 3);
  const auto gate_bias = testing::normal(kMlpInner, 4);
  const auto up_bias = testing::normal(kMlpInner, 5);
  const auto down_bias = testing::normal(kMlpWidth, 6);
  const MlpWeights mlp{.gate = has_gate ? &gate.view() : nullptr,
                       .up = &up.view(),
                       .down = &down.view(),
                       .gate_bias = gate_bias.data(),
                       .up_bias = up_bias.data(),
                       .down_bias = down_bias.data(),
                       .activation = activation};
  const AmxPackedWeights copies(std::vector{gate.view(), up.view(), down.view()});
  Workspace workspace;
  Context context{.compute = compute, .workspace = &workspace, .tiled = tiled ? &copies : nullptr};
  const auto x = testing::normal(70 * kMlpWidth, 7);
  const auto before = testing::normal(70 * kMlpWidth, 8);
  for (const std::size_t m : {0, 1, 3, 16, 25, 32, 33, 70}) {
    auto out = before;
    add_mlp(context, {out.data(), m, kMlpWidth}, {x.data(), m, kMlpWidth}, mlp);
    for (std::size_t i = 0; i < m; ++i) {
      const auto expected = reference(mlp, std::span(x).subspan(i * kMlpWidth, kMlpWidth));
      double size = 0.0;
      for (const double value : expected) {
        size = std::max(size, std::abs(value));
      }
      for (std::size_t n = 0; n < kMlpWidth; ++n) {
        ASSERT_NEAR(out[i * kMlpWidth + n] - before[i * kMlpWidth + n], expected[n],
                    tolerance * size)
            << "row " << i << " of " << m;
      }
    }
    ASSERT_TRUE(std::equal(out.begin() + static_cast<std::ptrdiff_t>(m * kMlpWidth), out.end(),
                           before.begin() + static_cast<std::ptrdiff_t>(m * kMlpWidth)))
        << "wrote past the rows";
  }
}

TEST(AddMlp, IsItsDefinition) {
  expect_mlp(DType::f32, false, 1e-5);
}

TEST(AddMlp, StaysNearItInBf16) {
  expect_mlp(DType::bf16, false, 1e-2);
}

TEST(AddMlp, StaysNearItOfTiledWeights) {
  if (!cpu_takes_amx_packed_weights()) {
    GTEST_SKIP() << testing::kNoBf16Tiles;
  }
  expect_mlp(DType::bf16, true, 1e-2);
  for (const GatedActivation& activation : kGated) {
    expect_mlp(DType::bf16, true, 1e-2, activation);
  }
  expect_mlp(DType::bf16, true, 1e-2, {Activation::relu_squared}, false);
}

TEST(AddMlp, TakesAnyActivation) {
  for (const GatedActivation& activation : kGated) {
    expect_mlp(DType::f32, false, 1e-5, activation);
  }
}

TEST(AddMlp, WithoutAGateIsPlain) {
  for (const Activation kind :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu_squared}) {
    expect_mlp(DType::f32, false, 1e-5, {kind}, false);
  }
}

}  // namespace
}  // namespace winnow::ops
