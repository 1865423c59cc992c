// The rotation of 4-bit entries against its matrix, written out in double.
#include "ops/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "ops/random_values.h"

namespace winnow::ops {
namespace {

using testing::normal;

constexpr int kRotatedDims[] = {8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 192, 256, 512};

// Entry (i, j) of the Hadamard matrix, whose index is the place within a block of a half and the
// half, times that of the reflection, whose index is the block.
double entry(int dim, int i, int j) {
  const auto half = static_cast<unsigned>(dim / 2);
  const unsigned block = half & (~half + 1);
  const unsigned blocks = half / block;
  const auto hadamard_index = [&](unsigned d) { return d % half % block + d / half * block; };
  const auto row = static_cast<unsigned>(i);
  const auto column = static_cast<unsigned>(j);
  const int ones = std::popcount(hadamard_index(row) & hadamard_index(column));
  const double hadamard = (ones % 2 == 0 ? 1.0 : -1.0) / std::sqrt(2.0 * block);
  const bool same_block = row % half / block == column % half / block;
  const double reflection = blocks == 1 ? 1.0 : (same_block ? 1.0 : 0.0) - 2.0 / blocks;
  return hadamard * reflection * (flips_sign(j) ? -1.0 : 1.0);
}

TEST(Rotation, IsItsMatrix) {
  for (const int dim : kRotatedDims) {
    const auto x = normal(dim, 1);
    auto y = x;
    rotate(y);
    for (int i = 0; i < dim; ++i) {
      double expected = 0.0;
      for (int j = 0; j < dim; ++j) {
        expected += entry(dim, i, j) * x[static_cast<std::size_t>(j)];
      }
      ASSERT_NEAR(y[static_cast<std::size_t>(i)], expected, 2e-6) << dim << " channel " << i;
    }
  }
}

TEST(Rotation, IsUndone) {
  for (const int dim : kRotatedDims) {
    const auto x = normal(dim, 2);
    auto y = x;
    rotate(y);
    rotate_back(y);
    for (std::size_t d = 0; d < x.size(); ++d) {
      ASSERT_NEAR(y[d], x[d], 2e-6) << dim;
    }
  }
}

TEST(Rotation, KeepsProducts) {
  for (const int dim : kRotatedDims) {
    auto a = normal(dim, 3);
    auto b = normal(dim, 4);
    const double before = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    rotate(a);
    rotate(b);
    EXPECT_NEAR(std::inner_product(a.begin(), a.end(), b.begin(), 0.0), before, 2e-5) << dim;
  }
}

// One channel's value spreads to all channels; how evenly depends only on the odd factor.
TEST(Rotation, SpreadsAnOutlier) {
  for (const int dim : {64, 128}) {
    for (int channel = 0; channel < dim; ++channel) {
      std::vector<float> x(static_cast<std::size_t>(dim), 0.0F);
      x[static_cast<std::size_t>(channel)] = 1.0F;
      rotate(x);
      for (const float value : x) {
        ASSERT_NEAR(std::abs(value), 1.0 / std::sqrt(dim), 1e-6);
      }
    }
  }
}

// A constant, which a Hadamard matrix alone would concentrate in one channel.
TEST(Rotation, SignsSpreadAConstant) {
  for (const int dim : kRotatedDims) {
    std::vector<float> x(static_cast<std::size_t>(dim), 1.0F);
    rotate(x);
    for (const float value : x) {
      EXPECT_LT(std::abs(value), 4.0F) << dim;
    }
  }
}

}  // namespace
}  // namespace winnow::ops
