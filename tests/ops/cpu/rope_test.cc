#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

std::vector<float> frequencies(std::size_t head_dim) {
  std::vector<float> result;
  for (std::size_t i = 0; i < head_dim / 2; ++i) {
    result.push_back(static_cast<float>(
        std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim))));
  }
  return result;
}

void expect_rotation(std::size_t dim, std::size_t rotary, float factor, std::size_t heads,
                     const std::vector<std::int32_t>& positions) {
  const auto radians = frequencies(rotary);
  const auto before = normal(positions.size() * heads * dim, dim);
  auto x = before;
  RopeAngles angles;
  angles.compute(radians, positions, factor);
  rope({x.data(), positions.size(), heads * dim}, static_cast<int>(dim), angles);
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t head = (t * heads + h) * dim;
      for (std::size_t i = 0; i < rotary / 2; ++i) {
        // The angle is rounded to float on purpose, as in the frameworks that trained the models.
        const double angle = static_cast<float>(positions[t]) * radians[i];
        const double cosine = double{factor} * std::cos(angle);
        const double sine = double{factor} * std::sin(angle);
        const double a = before[head + i];
        const double b = before[head + i + rotary / 2];
        ASSERT_NEAR(x[head + i], a * cosine - b * sine, 2e-6);
        ASSERT_NEAR(x[head + i + rotary / 2], b * cosine + a * sine, 2e-6);
      }
      for (std::size_t i = rotary; i < dim; ++i) {
        ASSERT_EQ(x[head + i], before[head + i]) << "channel " << i << " rotated";
      }
    }
  }
}

// Interleaved pairs are half-split pairs with their channels in alternating order.
TEST(Rope, RotatesInterleavedPlanes) {
  constexpr std::size_t kDim = 24;
  constexpr std::size_t kRotary = 16;
  const auto radians = frequencies(kRotary);
  const std::vector<std::int32_t> positions{0, 3, 911};
  const auto in_turn = normal(positions.size() * 2 * kDim, 5);
  const auto place = [&](std::size_t i) {  // of a half-split head's channel
    return i >= kRotary ? i : i / 2 + i % 2 * kRotary / 2;
  };
  std::vector<float> halves(in_turn.size());
  for (std::size_t i = 0; i < in_turn.size(); ++i) {
    halves[i / kDim * kDim + place(i % kDim)] = in_turn[i];
  }
  auto x = in_turn;
  const auto matrix = [&](std::vector<float>& values) {
    return Matrix<float>(values.data(), positions.size(), 2 * kDim);
  };
  RopeAngles angles;
  angles.compute(radians, positions, 1.5F);
  rope(matrix(halves), kDim, angles);
  angles.compute(radians, positions, 1.5F, true);
  rope(matrix(x), kDim, angles);
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(x[i], halves[i / kDim * kDim + place(i % kDim)], 1e-6) << i;
  }
  rope_backward(matrix(x), kDim, angles);  // back, times the factor once more
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(x[i], in_turn[i] * (i % kDim < kRotary ? 2.25F : 1.0F), 1e-5) << i;
  }
}

TEST(Rope, RotatesHalfSplitPlanes) {
  std::vector<std::int32_t> many(300);
  std::iota(many.begin(), many.end(), 0);
  for (const std::size_t dim : {2U, 8U, 24U, 64U, 128U}) {
    expect_rotation(dim, dim, 1.0F, 3, {0, 1, 17, 4095, 131071});
    expect_rotation(dim, dim, 1.0F, 1, many);
  }
}

TEST(Rope, RotatesTheRotaryChannelsAlone) {
  for (const std::size_t rotary : {0U, 2U, 16U, 24U, 64U, 126U}) {
    expect_rotation(128, rotary, 1.0F, 3, {0, 1, 17, 4095, 131071});
  }
  expect_rotation(256, 64, 1.0F, 2, {3, 70000});
}

TEST(Rope, MultipliesByTheFactor) {
  expect_rotation(64, 64, 1.25F, 2, {0, 1, 17, 4095});
  expect_rotation(48, 32, 0.5F, 2, {0, 1, 17, 4095});
}

TEST(Rope, PositionZeroChangesNothing) {
  auto x = normal(64, 1);
  const auto before = x;
  RopeAngles angles;
  angles.compute(frequencies(32), std::vector<std::int32_t>{0});
  rope({x.data(), 1, 64}, 32, angles);
  EXPECT_EQ(x, before);
}

// Attention relies on this: scores depend only on the distance.
TEST(Rope, ScoresDependOnTheDistance) {
  const auto query = normal(64, 1);
  const auto key = normal(64, 2);
  const auto score = [&](std::int32_t at_query, std::int32_t at_key) {
    auto q = query;
    auto k = key;
    RopeAngles angles;
    angles.compute(frequencies(64), std::vector<std::int32_t>{at_query});
    rope({q.data(), 1, 64}, 64, angles);
    angles.compute(frequencies(64), std::vector<std::int32_t>{at_key});
    rope({k.data(), 1, 64}, 64, angles);
    return std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
  };
  EXPECT_NEAR(score(5, 3), score(105, 103), 1e-4);
  EXPECT_NEAR(score(9, 9), score(0, 0), 1e-4);
}

// Rope is linear, so its backward is its adjoint: <rope(x), y> = <x, rope_backward(y)>.
TEST(Rope, BackwardIsTheAdjoint) {
  const std::size_t dim = 24;
  const std::vector<std::int32_t> positions{0, 1, 17, 4095};
  const std::size_t width = 2 * dim;
  for (const std::size_t rotary : {dim, std::size_t{10}}) {
    for (const float factor : {1.0F, 1.5F}) {
      RopeAngles angles;
      angles.compute(frequencies(rotary), positions, factor);
      const auto x = normal(positions.size() * width, 1);
      const auto y = normal(positions.size() * width, 2);
      auto rotated = x;
      auto rotated_back = y;
      rope({rotated.data(), positions.size(), width}, static_cast<int>(dim), angles);
      rope_backward({rotated_back.data(), positions.size(), width}, static_cast<int>(dim), angles);
      EXPECT_NEAR(std::inner_product(rotated.begin(), rotated.end(), y.begin(), 0.0),
                  std::inner_product(x.begin(), x.end(), rotated_back.begin(), 0.0), 1e-4);
      EXPECT_NE(rotated, x);
    }
  }
}

}  // namespace
}  // namespace winnow::ops
