// Weights that keep a checkpoint's 4 bits.
#include "model/packed_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace winnow::model {
namespace {

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 128;

int code_at(std::int64_t row, std::int64_t col) {
  return static_cast<int>((row * 7 + col * 5) % 16) - 8;
}

/// A scale for `group` columns of a row.
quantized::QuantizedMatrix int4_matrix(std::int64_t group) {
  quantized::QuantizedMatrix matrix;
  matrix.rows = kRows;
  matrix.cols = kCols;
  matrix.groups = kCols / group;
  for (std::int64_t k = 0; k < kCols; ++k) {
    matrix.group_of.push_back(static_cast<std::int32_t>(k / group));
  }
  for (std::int64_t i = 0; i < kRows * matrix.groups; ++i) {
    matrix.scales.push_back(std::ldexp(1.0F + static_cast<float>(i % 3) / 4.0F, -4));
  }
  matrix.is_int4 = true;
  matrix.codes = [](std::int64_t begin, std::int64_t end, float* out) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t k = 0; k < kCols; ++k) {
        *out++ = static_cast<float>(code_at(row, k));
      }
    }
  };
  return matrix;
}

void expect_values(const quantized::QuantizedMatrix& matrix, std::int64_t group,
                   std::int64_t first = 0, std::int64_t step = 1) {
  ASSERT_TRUE(matrix.stays_packed());
  const PackedWeight packed(matrix);
  EXPECT_EQ(packed.view().format, ops::WeightFormat::int4);
  const quantized::QuantizedMatrix whole = int4_matrix(group);
  std::vector<float> row(kCols);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    ops::dequantize_row(packed.view(), r, row.data());
    const std::int64_t of_whole = first + r * step;
    for (std::int64_t k = 0; k < kCols; ++k) {
      const auto scale = static_cast<std::size_t>(of_whole * whole.groups + k / group);
      ASSERT_EQ(row[static_cast<std::size_t>(k)],
                static_cast<float>(code_at(of_whole, k)) * whole.scales[scale])
          << of_whole << ", " << k;
    }
  }
}

TEST(PackedWeight, HoldsInt4Exactly) {
  for (const std::int64_t group : {32, 64, 128}) {
    expect_values(int4_matrix(group), group);
    expect_values(rows_of(int4_matrix(group), {.first = 1, .count = 2, .step = 2}), group, 1, 2);
  }
}

TEST(PackedWeight, WhatItCannotHoldIsConverted) {
  EXPECT_FALSE(int4_matrix(16).stays_packed());
  auto fine = int4_matrix(32);
  fine.scales[3] = 0.1F;  // not in bf16
  EXPECT_FALSE(fine.stays_packed());
  auto shifted = int4_matrix(32);
  shifted.zeros.assign(shifted.scales.size(), 1.0F);
  EXPECT_FALSE(shifted.stays_packed());
  auto mixed = int4_matrix(32);
  std::swap(mixed.group_of[0], mixed.group_of[40]);  // act-order
  EXPECT_FALSE(mixed.stays_packed());
  auto wider = int4_matrix(32);
  wider.is_int4 = false;
  EXPECT_FALSE(wider.stays_packed());
}

}  // namespace
}  // namespace winnow::model
