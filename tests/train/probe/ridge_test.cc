#include "train/probe/ridge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"

namespace winnow::train {
namespace {

constexpr std::size_t kInputs = 13;
constexpr std::size_t kOutputs = 3;

// Inputs that are not centred and depend on each other, and what a planted map gives for them.
struct Planted {
  explicit Planted(std::size_t rows) : x(rows * kInputs), y(rows * kOutputs) {
    Random random(5);
    for (std::size_t i = 0; i < kInputs * kOutputs; ++i) {
      map.weight.push_back(static_cast<float>(random.normal()));
    }
    map.bias = {-4.0F, 0.0F, 2.5F};
    for (std::size_t t = 0; t < rows; ++t) {
      const double common = random.normal();
      for (std::size_t i = 0; i < kInputs; ++i) {
        x[t * kInputs + i] =
            static_cast<float>(random.normal() + 0.5 * common + static_cast<double>(i % 3));
      }
      for (std::size_t o = 0; o < kOutputs; ++o) {
        double sum = map.bias[o];
        for (std::size_t i = 0; i < kInputs; ++i) {
          sum += double{map.weight[o * kInputs + i]} * x[t * kInputs + i];
        }
        y[t * kOutputs + o] = static_cast<float>(sum);
      }
    }
  }
  [[nodiscard]] ops::Matrix<const float> inputs() const {
    return {x.data(), x.size() / kInputs, kInputs};
  }
  [[nodiscard]] ops::Matrix<const float> outputs() const {
    return {y.data(), y.size() / kOutputs, kOutputs};
  }

  model::LinearScorer map;
  std::vector<float> x;
  std::vector<float> y;
};

RidgeSums sums_of(const Planted& planted, std::size_t step) {
  RidgeSums sums(kInputs, kOutputs);
  const std::size_t rows = planted.inputs().rows;
  for (std::size_t first = 0; first < rows; first += step) {
    const std::size_t last = std::min(rows, first + step);
    sums.add(planted.inputs().slice(first, last), planted.outputs().slice(first, last));
  }
  return sums;
}

TEST(Ridge, RecoversAPlantedMap) {
  const Planted planted(400);
  const model::LinearScorer found = sums_of(planted, 37).solve(1e-6);
  ASSERT_EQ(found.weight.size(), planted.map.weight.size());
  for (std::size_t i = 0; i < found.weight.size(); ++i) {
    EXPECT_NEAR(found.weight[i], planted.map.weight[i], 1e-5) << i;
  }
  for (std::size_t o = 0; o < kOutputs; ++o) {
    EXPECT_NEAR(found.bias[o], planted.map.bias[o], 1e-5) << o;
  }
}

// At the least of |W x + b - y|^2 + penalty |W|^2 its derivatives are 0.
TEST(Ridge, PenaltyMovesTheMinimum) {
  const Planted planted(50);
  const double penalty = 7.0;
  const model::LinearScorer found = sums_of(planted, 50).solve(penalty);
  for (std::size_t o = 0; o < kOutputs; ++o) {
    std::vector<double> by_weight(kInputs);
    double by_bias = 0.0;
    for (std::size_t t = 0; t < 50; ++t) {
      const auto x = planted.inputs().row(t);
      double error = found.bias[o] - planted.outputs().row(t)[o];
      for (std::size_t i = 0; i < kInputs; ++i) {
        error += double{found.weight[o * kInputs + i]} * x[i];
      }
      by_bias += error;
      for (std::size_t i = 0; i < kInputs; ++i) {
        by_weight[i] += error * x[i];
      }
    }
    EXPECT_NEAR(by_bias, 0.0, 1e-3);
    for (std::size_t i = 0; i < kInputs; ++i) {
      EXPECT_NEAR(by_weight[i] + penalty * double{found.weight[o * kInputs + i]}, 0.0, 1e-3);
    }
  }
}

TEST(Ridge, ThreadsChangeNothing) {
  const Planted planted(200);
  set_threads(1);
  const model::LinearScorer one = sums_of(planted, 64).solve(1.0);
  set_threads(3);
  const model::LinearScorer three = sums_of(planted, 64).solve(1.0);
  set_threads(1);
  EXPECT_EQ(one.weight, three.weight);
  EXPECT_EQ(one.bias, three.bias);
}

TEST(Ridge, RefusesWhatIsNoNumber) {
  Planted planted(20);
  planted.x[30] = std::numeric_limits<float>::quiet_NaN();
  try {
    static_cast<void>(sums_of(planted, 20).solve(1.0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("do not determine a probe"));
  }
}

}  // namespace
}  // namespace winnow::train
