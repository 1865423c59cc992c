#include "ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "ops/gradient_testing.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

void expect_norm(std::size_t rows, std::size_t cols, double spread, bool in_place,
                 float offset = 0.0F) {
  const auto x = normal(rows * cols, cols, spread);
  const auto weight = normal(cols, 7, 1.0);
  const float eps = 1e-5F;
  std::vector<float> out = in_place ? x : std::vector<float>(x.size(), std::nanf(""));
  const Matrix<const float> source(in_place ? out.data() : x.data(), rows, cols);
  rms_norm({out.data(), rows, cols}, source, weight, eps, offset);
  for (std::size_t m = 0; m < rows; ++m) {
    double squares = 0.0;
    for (std::size_t i = 0; i < cols; ++i) {
      squares += double{x[m * cols + i]} * x[m * cols + i];
    }
    const double root = std::sqrt(squares / static_cast<double>(cols) + double{eps});
    for (std::size_t i = 0; i < cols; ++i) {
      const double expected = x[m * cols + i] / root * (double{offset} + weight[i]);
      ASSERT_NEAR(out[m * cols + i], expected, 2e-6 * (1.0 + std::abs(expected)))
          << rows << " x " << cols << " at " << m << ", " << i;
    }
  }
}

TEST(RmsNorm, IsItsDefinition) {
  for (const std::size_t cols : {1U, 7U, 8U, 33U, 64U, 127U, 896U, 4096U}) {
    for (const std::size_t rows : {1U, 3U, 40U}) {  // 40 x 4096 is large enough for several threads
      expect_norm(rows, cols, 1.0, false);
      expect_norm(rows, cols, 1.0, true);
      expect_norm(rows, cols, 1.0, false, 1.0F);
    }
  }
  expect_norm(2, 64, 1e-4, false);  // eps matters
  expect_norm(2, 64, 1e6, false);
}

void expect_norm_gradients(double offset) {
  constexpr double kEps = 1e-3;
  for (const std::size_t cols : {1U, 7U, 33U, 600U}) {
    const std::size_t rows = cols == 600U ? 40 : 3;  // large enough for several threads
    const testing::Values x = testing::draw(rows * cols, cols, 0.5);
    const testing::Values weight = testing::draw(cols, cols + 1);
    const testing::Values dout = testing::draw(rows * cols, cols + 2);
    // sum(dout * rms_norm(x, weight)) of row m alone.
    const auto loss_of_row = [&](std::span<const double> row, const testing::Values& w,
                                 std::size_t m) {
      double squares = 0.0;
      double dot = 0.0;
      for (std::size_t i = 0; i < cols; ++i) {
        squares += row[i] * row[i];
        dot += dout[m * cols + i] * row[i] * (offset + w[i]);
      }
      return dot / std::sqrt(squares / static_cast<double>(cols) + kEps);
    };
    const auto row_of = [&](std::size_t m) { return std::span(x).subspan(m * cols, cols); };
    std::vector<float> dx(rows * cols, 0.0F);
    std::vector<float> dweight(cols, 0.0F);
    const auto x_floats = testing::to_floats(x);
    const auto weight_floats = testing::to_floats(weight);
    const auto dout_floats = testing::to_floats(dout);
    Workspace workspace;
    rms_norm_backward(workspace, {dx.data(), rows, cols}, dweight, {dout_floats.data(), rows, cols},
                      {x_floats.data(), rows, cols}, weight_floats, static_cast<float>(kEps),
                      static_cast<float>(offset));
    for (const std::size_t m : {std::size_t{0}, rows - 1}) {
      const auto row = row_of(m);
      testing::expect_gradient(
          [&](const testing::Values& values) { return loss_of_row(values, weight, m); },
          {row.begin(), row.end()}, std::span(dx).subspan(m * cols, cols));
    }
    testing::expect_gradient(
        [&](const testing::Values& w) {
          double loss = 0.0;
          for (std::size_t m = 0; m < rows; ++m) {
            loss += loss_of_row(row_of(m), w, m);
          }
          return loss;
        },
        weight, dweight);
  }
}

TEST(RmsNorm, Backward) {
  expect_norm_gradients(0.0);
}

TEST(RmsNorm, BackwardWithAnOffset) {
  expect_norm_gradients(1.0);
}

TEST(RmsNorm, BackwardAddsToWhatIsThere) {
  const std::vector<float> x{1.0F, 2.0F};
  const std::vector<float> weight{1.0F, 1.0F};
  const std::vector<float> dout{0.5F, -1.0F};
  std::vector<float> once(2, 0.0F);
  std::vector<float> twice(2, 0.0F);
  std::vector<float> dweight(2, 0.0F);
  Workspace workspace;
  const auto run = [&](std::vector<float>& dx) {
    rms_norm_backward(workspace, {dx.data(), 1, 2}, dweight, {dout.data(), 1, 2}, {x.data(), 1, 2},
                      weight, 1e-6F);
  };
  run(once);
  run(twice);
  run(twice);
  EXPECT_FLOAT_EQ(twice[0], 2.0F * once[0]);
  EXPECT_FLOAT_EQ(twice[1], 2.0F * once[1]);
}

TEST(RmsNorm, ZerosStayZero) {
  std::vector<float> x(32, 0.0F);
  const std::vector<float> weight(32, 1.0F);
  rms_norm({x.data(), 1, 32}, {x.data(), 1, 32}, weight, 1e-6F);
  EXPECT_EQ(x, std::vector<float>(32, 0.0F));
}

TEST(RmsNorm, KeepsToItsColumnsOfAWiderMatrix) {
  std::vector<float> x = normal(20, 1, 1.0);
  const std::vector<float> before = x;
  const std::vector<float> weight(4, 1.0F);
  const Matrix<float> middle(x.data() + 3, 2, 4, 10);
  rms_norm(middle, middle, weight, 1e-6F);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool inside = i % 10 >= 3 && i % 10 < 7;
    EXPECT_EQ(x[i] == before[i], !inside) << i;
  }
}

// LayerNorm where row m uses the weights of row m mod parts.
testing::Values layer_norm_of(const testing::Values& x, std::size_t cols,
                              const testing::Values& weight, const testing::Values& bias,
                              double offset) {
  constexpr double kEps = 1e-3;
  testing::Values out(x.size());
  for (std::size_t m = 0; m < x.size() / cols; ++m) {
    const auto row = std::span(x).subspan(m * cols, cols);
    double mean = 0.0;
    double variance = 0.0;
    for (const double value : row) {
      mean += value / static_cast<double>(cols);
    }
    for (const double value : row) {
      variance += (value - mean) * (value - mean) / static_cast<double>(cols);
    }
    for (std::size_t i = 0; i < cols; ++i) {
      const std::size_t at = (m * cols + i) % weight.size();
      out[m * cols + i] = (row[i] - mean) / std::sqrt(variance + kEps) * (offset + weight[at]) +
                          (bias.empty() ? 0.0 : bias[at]);
    }
  }
  return out;
}

void expect_layer_norm(std::size_t rows, std::size_t cols, std::size_t parts, bool has_bias,
                       double offset) {
  const testing::Values x = testing::draw(rows * cols, cols);
  const testing::Values weight = testing::draw(parts * cols, cols + 1);
  const testing::Values bias = has_bias ? testing::draw(parts * cols, 3) : testing::Values();
  const auto out = layer_norm_of(x, cols, weight, bias, offset);
  auto floats = testing::to_floats(x);
  const auto weights = testing::to_floats(weight);
  layer_norm({floats.data(), rows, cols}, {floats.data(), rows, cols}, weights,
             testing::to_floats(bias), 1e-3F, static_cast<float>(offset));
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(floats[i], out[i], 1e-5 * (1.0 + std::abs(out[i]))) << cols << " at " << i;
  }

  const testing::Values dout = testing::draw(rows * cols, cols + 2);
  const auto loss = [&](const testing::Values& y) {
    return std::inner_product(y.begin(), y.end(), dout.begin(), 0.0);
  };
  std::vector<float> dx(rows * cols);
  std::vector<float> dweight(weight.size());
  std::vector<float> dbias(bias.size());
  const auto dout_floats = testing::to_floats(dout);
  const auto x_floats = testing::to_floats(x);
  Workspace workspace;
  layer_norm_backward(workspace, {{dx.data(), rows, cols}, dweight, dbias},
                      {dout_floats.data(), rows, cols}, {x_floats.data(), rows, cols}, weights,
                      1e-3F, static_cast<float>(offset));
  testing::expect_gradient(
      [&](const auto& v) { return loss(layer_norm_of(v, cols, weight, bias, offset)); }, x, dx,
      1e-4);
  testing::expect_gradient(
      [&](const auto& v) { return loss(layer_norm_of(x, cols, v, bias, offset)); }, weight, dweight,
      1e-4);
  if (has_bias) {
    testing::expect_gradient(
        [&](const auto& v) { return loss(layer_norm_of(x, cols, weight, v, offset)); }, bias, dbias,
        1e-4);
  }
}

TEST(LayerNorm, AndItsGradientsAreItsDefinition) {
  for (const std::size_t cols : {2U, 7U, 33U}) {
    expect_layer_norm(3, cols, 1, false, 0.0);
    expect_layer_norm(4, cols, 1, true, 1.0);
    expect_layer_norm(6, cols, 3, true, 0.0);  // rows with their own weights
  }
}

}  // namespace
}  // namespace winnow::ops
