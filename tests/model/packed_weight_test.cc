// Weights that stay packed in a checkpoint's 4 or 8 bits.
#include "model/packed_weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace winnow::model {
namespace {

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 128;

/// A pattern that contains all integers of `bits` bits.
int code_at(std::int64_t row, std::int64_t col, int bits) {
  return static_cast<int>((row * 7 + col * 5) % (1 << bits)) - (1 << (bits - 1));
}

/// A matrix with a scale per `group` columns of a row.
quantized::QuantizedMatrix integers(std::int64_t group, int bits = 4) {
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
  matrix.integer_bits = bits;
  matrix.codes = [bits](std::int64_t begin, std::int64_t end, float* out) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t k = 0; k < kCols; ++k) {
        *out++ = static_cast<float>(code_at(row, k, bits));
      }
    }
  };
  return matrix;
}

void expect_values(const quantized::QuantizedMatrix& matrix, std::int64_t group,
                   std::int64_t first = 0, std::int64_t step = 1) {
  ASSERT_TRUE(matrix.stays_packed());
  const PackedWeight packed(matrix);
  const int bits = matrix.integer_bits;
  EXPECT_EQ(packed.view().format, bits <= 4 ? ops::WeightFormat::int4 : ops::WeightFormat::int8);
  const quantized::QuantizedMatrix whole = integers(group, bits);
  std::vector<float> row(kCols);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    ops::dequantize_row(packed.view(), r, row.data());
    const std::int64_t of_whole = first + r * step;
    for (std::int64_t k = 0; k < kCols; ++k) {
      const auto scale = static_cast<std::size_t>(of_whole * whole.groups + k / group);
      ASSERT_EQ(row[static_cast<std::size_t>(k)],
                static_cast<float>(code_at(of_whole, k, bits)) * whole.scales[scale])
          << of_whole << ", " << k;
    }
  }
}

TEST(PackedWeight, HoldsIntegersExactly) {
  for (const int bits : {2, 4, 6, 8}) {
    for (const std::int64_t group : {32, 64, 128}) {
      SCOPED_TRACE(bits);
      expect_values(integers(group, bits), group);
      expect_values(rows_of(integers(group, bits), {.first = 1, .count = 2, .step = 2}), group, 1,
                    2);
    }
  }
}

// Unsigned codes with the zero in the middle (GPTQ, AWQ) become signed ones.
TEST(PackedWeight, HoldsUnsignedCodesAroundTheirMiddle) {
  for (const int bits : {4, 8}) {
    const float middle = bits == 4 ? 8.0F : 128.0F;
    quantized::QuantizedMatrix matrix = integers(64, bits);
    matrix.integer_bits = 0;
    matrix.zeros.assign(matrix.scales.size(), middle);
    matrix.codes = [read = matrix.codes, middle](std::int64_t begin, std::int64_t end, float* out) {
      read(begin, end, out);
      std::for_each(out, out + (end - begin) * kCols, [middle](float& code) { code += middle; });
    };
    quantized::QuantizedMatrix other = matrix;
    other.zeros[1] -= 1.0F;
    make_signed(other, bits);
    EXPECT_FALSE(other.stays_packed());
    make_signed(matrix, bits);
    expect_values(matrix, 64);
  }
}

TEST(PackedWeight, WhatItCannotHoldIsConverted) {
  EXPECT_FALSE(integers(16).stays_packed());
  auto fine = integers(32);
  fine.scales[3] = 0.1F;  // not exact in bf16
  EXPECT_FALSE(fine.stays_packed());
  auto shifted = integers(32);
  shifted.zeros.assign(shifted.scales.size(), 1.0F);
  EXPECT_FALSE(shifted.stays_packed());
  auto mixed = integers(32);
  std::swap(mixed.group_of[0], mixed.group_of[40]);  // act-order
  EXPECT_FALSE(mixed.stays_packed());
  auto wider = integers(32);
  wider.integer_bits = 0;
  EXPECT_FALSE(wider.stays_packed());
}

}  // namespace
}  // namespace winnow::model
