#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace winnow {
namespace {

// Nearest value of a format found by trying all of its bit patterns; ties go to the even pattern.
template <class T, class Bits>
T nearest(float x, Bits last_positive) {
  T best{};
  double best_distance = std::numeric_limits<double>::infinity();
  for (unsigned bits = 0; bits <= last_positive; ++bits) {
    const T candidate{static_cast<Bits>(bits)};
    const double distance = std::abs(double{to_float(candidate)} - std::abs(double{x}));
    if (distance < best_distance || (distance == best_distance && (bits & 1U) == 0)) {
      best = candidate;
      best_distance = distance;
    }
  }
  const auto sign = std::signbit(x) ? Bits(1) << (8 * sizeof(Bits) - 1) : 0;
  best.bits = static_cast<Bits>(best.bits | sign);
  return best;
}

TEST(DType, F8RoundTripsEveryPattern) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const f8e4m3 value{static_cast<std::uint8_t>(bits)};
    if ((bits & 0x7FU) == 0x7FU) {
      EXPECT_TRUE(std::isnan(to_float(value)));
    } else {
      EXPECT_EQ(to_f8e4m3(to_float(value)).bits, bits);
    }
  }
}

TEST(DType, F8RoundsToNearestEven) {
  for (int i = -20000; i <= 20000; ++i) {
    const float x = static_cast<float>(i) * std::abs(static_cast<float>(i)) * 1.2e-6F;
    EXPECT_EQ(to_f8e4m3(x).bits, (nearest<f8e4m3, std::uint8_t>(x, 0x7E).bits)) << x;
  }
  EXPECT_EQ(to_float(to_f8e4m3(1e9F)), kF8E4M3Max);
  EXPECT_EQ(to_float(to_f8e4m3(-1e9F)), -kF8E4M3Max);
}

TEST(DType, F16RoundTripsEveryFinitePattern) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const f16 value{static_cast<std::uint16_t>(bits)};
    if (!std::isnan(to_float(value))) {
      EXPECT_EQ(to_f16(to_float(value)).bits, bits);
    }
  }
}

TEST(DType, F16RoundsToNearestEven) {
  for (const float x : {1.0F + 0x1p-11F, 1.0F + 3 * 0x1p-11F, 65519.0F, 0x1p-25F, 3 * 0x1p-25F,
                        0.1F, -2.718281F, 6.1e-5F}) {
    EXPECT_EQ(to_f16(x).bits, (nearest<f16, std::uint16_t>(x, 0x7BFF).bits)) << x;
  }
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.0F))));
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(1.0F + 3 * 0x1p-8F).bits, 0x3F82);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace winnow
