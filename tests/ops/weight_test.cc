#include "ops/weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "ops/random_values.h"

namespace winnow::ops {
namespace {

constexpr std::int64_t kWeightRows = 9;
constexpr std::int64_t kCols = 96;

Weight f32_weight(const std::vector<float>& values, std::int64_t cols = kCols) {
  return {.format = WeightFormat::f32,
          .rows = static_cast<std::int64_t>(values.size()) / cols,
          .cols = cols,
          .data = values.data()};
}

std::vector<float> dequantized(const Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows * weight.cols));
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    dequantize_row(weight, row, values.data() + row * weight.cols);
  }
  return values;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b, std::size_t begin,
                     std::size_t end) {
  double error = 0;
  for (std::size_t i = begin; i < end; ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return error;
}

template <class T>
TensorView tensor(DType type, const std::vector<T>& values, Shape shape) {
  return {type, std::move(shape), reinterpret_cast<const std::byte*>(values.data())};
}

TEST(WeightView, KeepsTheMemoryOfTheCheckpoint) {
  const std::vector<std::uint16_t> bits(12);
  const Weight weight = weight_view(tensor(DType::bf16, bits, {3, 4}));
  EXPECT_EQ(weight.format, WeightFormat::bf16);
  EXPECT_EQ(weight.rows, 3);
  EXPECT_EQ(weight.cols, 4);
  EXPECT_EQ(weight.data, bits.data());
  EXPECT_EQ(weight.bytes(), 24U);
  EXPECT_EQ(weight_view(tensor(DType::f16, bits, {2, 6})).format, WeightFormat::f16);
}

TEST(WeightView, RejectsWhatIsNoWeight) {
  const std::vector<std::uint16_t> bits(12);
  EXPECT_THROW(weight_view(tensor(DType::i32, bits, {2, 3})), Error);
  EXPECT_THROW(weight_view(tensor(DType::bf16, bits, {12})), Error);
  EXPECT_THROW(weight_view(tensor(DType::bf16, bits, {3, 2, 2})), Error);
}

TEST(DequantizeRow, ReadsEveryBitPatternOfHalfFormats) {
  std::vector<f16> halves;
  std::vector<bf16> brains;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    halves.push_back({static_cast<std::uint16_t>(bits)});
    brains.push_back({static_cast<std::uint16_t>(bits)});
  }
  const auto from_f16 = dequantized(weight_view(tensor(DType::f16, halves, {1 << 8, 1 << 8})));
  const auto from_bf16 = dequantized(weight_view(tensor(DType::bf16, brains, {1 << 8, 1 << 8})));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    ASSERT_TRUE(same(from_f16[i], to_float(halves[i]))) << i;
    ASSERT_TRUE(same(from_bf16[i], to_float(brains[i]))) << i;
  }
}

TEST(DequantizeRow, ReadsColumnsBeyondTheLastGroup) {
  const auto values = testing::normal(37 * 3, 1);
  EXPECT_EQ(dequantized(f32_weight(values, 37)), values);
}

TEST(QuantizedWeight, Int8IsWithinHalfAStep) {
  const auto values = testing::normal(kWeightRows * kCols, 1);
  const QuantizedWeight quantized(f32_weight(values), WeightFormat::int8);
  const Weight view = quantized.view();
  EXPECT_EQ(view.bytes(),
            static_cast<std::size_t>(kWeightRows * kCols + kWeightRows * kCols / 32 * 2));
  const auto got = dequantized(view);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float step = to_float(view.scales[i / 32]);
    ASSERT_LE(std::abs(got[i] - values[i]), 0.5F * step * 1.0001F) << i;
  }
}

TEST(QuantizedWeight, Int8ScaleIsTheLargestMagnitudeOver127) {
  std::vector<float> values(32, 0.0F);
  values[3] = -63.5F;
  const QuantizedWeight quantized(f32_weight(values, 32), WeightFormat::int8);
  EXPECT_EQ(to_float(quantized.view().scales[0]), 0.5F);
  EXPECT_EQ(dequantized(quantized.view()), values);
}

TEST(QuantizedWeight, Int4BeatsThePlainScale) {
  const auto values = testing::normal(kWeightRows * kCols, 1);
  const QuantizedWeight quantized(f32_weight(values), WeightFormat::int4);
  EXPECT_EQ(quantized.view().bytes(),
            static_cast<std::size_t>(kWeightRows * kCols / 2 + kWeightRows * kCols / 32 * 2));
  const auto got = dequantized(quantized.view());
  double total = 0;
  double plain_total = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += 32) {
    float largest = 0;
    for (std::size_t i = begin; i < begin + 32; ++i) {
      largest = std::max(largest, std::abs(values[i]));
    }
    const float step = to_float(to_bf16(largest / 7));
    auto plain = values;
    for (std::size_t i = begin; i < begin + 32; ++i) {
      plain[i] = step * std::clamp(std::nearbyint(values[i] / step), -8.0F, 7.0F);
    }
    const double error = squared_error(got, values, begin, begin + 32);
    const double plain_error = squared_error(plain, values, begin, begin + 32);
    EXPECT_LE(error, plain_error * 1.05);
    total += error;
    plain_total += plain_error;
  }
  EXPECT_LT(total, 0.85 * plain_total);
}

TEST(QuantizedWeight, Int4KeepsWhatItCanRepresent) {
  std::vector<float> values;
  for (int i = 0; i < 32; ++i) {
    values.push_back(0.25F * static_cast<float>(i % 16 - 8));
  }
  const QuantizedWeight quantized(f32_weight(values, 32), WeightFormat::int4);
  EXPECT_EQ(dequantized(quantized.view()), values);
  // The even column is the low nibble, stored + 8.
  const auto* packed = static_cast<const std::uint8_t*>(quantized.view().data);
  const int even = (packed[1] & 0x0F) - 8;
  const int odd = (packed[1] >> 4) - 8;
  const float scale = to_float(quantized.view().scales[0]);
  EXPECT_EQ(scale * static_cast<float>(even), values[2]);
  EXPECT_EQ(scale * static_cast<float>(odd), values[3]);
}

TEST(QuantizedWeight, ZerosStayZero) {
  const std::vector<float> zeros(64, 0.0F);
  for (const auto format : {WeightFormat::int8, WeightFormat::int4}) {
    EXPECT_EQ(dequantized(QuantizedWeight(f32_weight(zeros, 64), format).view()), zeros);
  }
}

TEST(QuantizedWeight, ReadsOtherFormats) {
  const auto values = testing::normal(64, 1);
  std::vector<bf16> brains;
  std::vector<float> rounded;
  for (const float value : values) {
    brains.push_back(to_bf16(value));
    rounded.push_back(to_float(brains.back()));
  }
  const QuantizedWeight direct(f32_weight(rounded, 64), WeightFormat::int8);
  const QuantizedWeight converted(weight_view(tensor(DType::bf16, brains, {1, 64})),
                                  WeightFormat::int8);
  EXPECT_EQ(dequantized(direct.view()), dequantized(converted.view()));
}

TEST(QuantizedWeight, RejectsPartialGroups) {
  const auto values = testing::normal(33, 1);
  EXPECT_THROW(QuantizedWeight(f32_weight(values, 33), WeightFormat::int8), Error);
}

}  // namespace
}  // namespace winnow::ops
