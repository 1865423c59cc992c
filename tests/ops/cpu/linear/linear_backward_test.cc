#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "base/threads.h"
#include "ops/linear.h"
#include "ops/owned_weight.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::kFormats;
using testing::OwnedWeight;
using testing::row_of;

/// LinearGradients, from zero, of out = x weight^T + bias.
struct LinearGradients {
  std::vector<float> x;
  std::vector<float> weight;
  std::vector<float> bias;
};

LinearGradients backward(Matrix<const float> dout, Matrix<const float> x, const Weight& weight,
                         DType compute = DType::f32) {
  LinearGradients g{std::vector<float>(x.rows * x.cols), std::vector<float>(dout.cols * x.cols),
                    std::vector<float>(dout.cols)};
  Workspace workspace;
  Context context{.compute = compute, .workspace = &workspace};
  linear_backward(context,
                  {{g.x.data(), x.rows, x.cols}, {g.weight.data(), dout.cols, x.cols}, g.bias},
                  dout, x, weight);
  return g;
}

// The op is linear in each operand, so its gradients are explicit sums.
TEST(LinearBackward, IsItsDefinition) {
  for (const WeightFormat format : kFormats) {
    for (const std::size_t rows : {1U, 3U, 130U}) {
      const std::size_t outputs = 200;
      const std::size_t cols = 96;
      const OwnedWeight weight(format, outputs, cols, 1);
      const auto x = testing::normal(rows * cols, 2);
      const auto dout = testing::normal(rows * outputs, 3);
      const LinearGradients g =
          backward({dout.data(), rows, outputs}, {x.data(), rows, cols}, weight.view());
      std::vector<double> dx(rows * cols);
      std::vector<double> dweight(outputs * cols);
      std::vector<double> dbias(outputs);
      for (std::size_t n = 0; n < outputs; ++n) {
        const auto row = row_of(weight.view(), n);
        for (std::size_t m = 0; m < rows; ++m) {
          const double gradient = dout[m * outputs + n];
          dbias[n] += gradient;
          for (std::size_t k = 0; k < cols; ++k) {
            dx[m * cols + k] += gradient * row[k];
            dweight[n * cols + k] += gradient * x[m * cols + k];
          }
        }
      }
      const auto expect_near = [](std::span<const float> a, std::span<const double> b) {
        for (std::size_t i = 0; i < a.size(); ++i) {
          ASSERT_NEAR(a[i], b[i], 2e-5 * (1.0 + std::abs(b[i]))) << "at " << i;
        }
      };
      expect_near(g.x, dx);
      expect_near(g.weight, dweight);
      expect_near(g.bias, dbias);
    }
  }
}

// Two factors rounded to 9 bits each, and errors of different terms that cancel in sums.
TEST(LinearBackward, RoundsFactorsAlone) {
  const std::size_t rows = 130;
  const std::size_t outputs = 200;
  const std::size_t cols = 96;
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8}) {
    const OwnedWeight weight(format, outputs, cols, 1);
    const auto x = testing::normal(rows * cols, 2);
    const auto dout = testing::normal(rows * outputs, 3);
    const auto run = [&](DType compute) {
      return backward({dout.data(), rows, outputs}, {x.data(), rows, cols}, weight.view(), compute);
    };
    const LinearGradients exact = run(DType::f32);
    const LinearGradients rounded = run(DType::bf16);
    const auto expect_near = [](const std::vector<float>& a, const std::vector<float>& b) {
      double error = 0.0;
      double size = 0.0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        error += std::pow(a[i] - b[i], 2);
        size += std::pow(b[i], 2);
      }
      EXPECT_LT(std::sqrt(error / size), 4e-3);
    };
    expect_near(rounded.x, exact.x);
    expect_near(rounded.weight, exact.weight);
    EXPECT_EQ(rounded.bias, exact.bias);
  }
}

TEST(LinearBackward, AddsAndLeavesOutWhatIsNotAskedFor) {
  const OwnedWeight weight(WeightFormat::f32, 4, 2, 1);
  const auto x = testing::normal(6, 2);
  const auto dout = testing::normal(12, 3);
  const LinearGradients g = backward({dout.data(), 3, 4}, {x.data(), 3, 2}, weight.view());
  std::vector<float> twice(6);
  Workspace workspace;
  Context context{.compute = DType::f32, .workspace = &workspace};
  for (int i = 0; i < 2; ++i) {
    linear_backward(context, {.x = {twice.data(), 3, 2}, .weight = {}, .bias = {}},
                    {dout.data(), 3, 4}, {x.data(), 3, 2}, weight.view());
  }
  for (std::size_t i = 0; i < twice.size(); ++i) {
    EXPECT_FLOAT_EQ(twice[i], 2.0F * g.x[i]);
  }
}

TEST(LinearBackward, TheSameBitsOnAnyNumberOfThreads) {
  const OwnedWeight weight(WeightFormat::bf16, 300, 160, 1);
  const auto x = testing::normal(400 * 160, 2);
  const auto dout = testing::normal(400 * 300, 3);
  for (const DType compute : {DType::f32, DType::bf16}) {
    const auto run = [&](int threads) {
      set_threads(threads);
      return backward({dout.data(), 400, 300}, {x.data(), 400, 160}, weight.view(), compute);
    };
    const LinearGradients one = run(1);
    const LinearGradients three = run(3);
    EXPECT_EQ(one.x, three.x);
    EXPECT_EQ(one.weight, three.weight);
    EXPECT_EQ(one.bias, three.bias);
  }
  set_threads(0);
}

}  // namespace
}  // namespace winnow::ops
