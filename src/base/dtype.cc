#include "base/dtype.h"

#include <array>
#include <cmath>

namespace winnow {

std::string_view dtype_name(DType type) {
  switch (type) {
    case DType::f32:
      return "fp32";
    case DType::f16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    case DType::f8e4m3:
      return "fp8";
    case DType::i8:
      return "int8";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
  }
  return "?";
}

namespace {

constexpr float widen(f16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000U} << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = x.bits & 0x3FFU;
  if (exponent == 0x1FU) {
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  }
  if (exponent == 0) {  // subnormal: mantissa * 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

constexpr std::array<float, 256> f8e4m3_values() {
  std::array<float, 256> values{};
  for (std::uint32_t bits = 0; bits < values.size(); ++bits) {
    const std::uint32_t magnitude = bits & 0x7FU;
    // Read as a binary16 with the same mantissa, the exponent bias is off by 8.
    const f16 widened{static_cast<std::uint16_t>(((bits & 0x80U) << 8) | (magnitude << 7))};
    values[bits] = magnitude == 0x7FU ? std::bit_cast<float>(0x7FC00000U) : widen(widened) * 256.0F;
  }
  return values;
}

}  // namespace

f16 to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  }
  if (magnitude >= 0x477FF000U) {  // rounds to 65536 or more
    return {static_cast<std::uint16_t>(sign | 0x7C00U)};
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: count units of 2^-24, ties to even
    const float units = std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p24F);
    return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(units))};
  }
  const std::uint32_t rebased = magnitude - (112U << 23);
  const std::uint32_t rounded = rebased + 0xFFFU + ((rebased >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

float to_float(f16 x) {
  return widen(x);
}

float to_float(f8e4m3 x) {
  static constexpr auto kValues = f8e4m3_values();
  return kValues[x.bits];
}

f8e4m3 to_f8e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return {static_cast<std::uint8_t>(sign | 0x7FU)};
  }
  if (magnitude < 0x3C800000U) {  // below 2^-6: count units of 2^-9, ties to even
    const float units = std::nearbyint(std::bit_cast<float>(magnitude) * 0x1p9F);
    return {static_cast<std::uint8_t>(sign | static_cast<std::uint8_t>(units))};
  }
  if (magnitude >= 0x43E00000U) {  // 448 and above, infinity included
    return {static_cast<std::uint8_t>(sign | 0x7EU)};
  }
  const std::uint32_t rebased = magnitude - (120U << 23);
  const std::uint32_t rounded = (rebased + 0x7FFFFU + ((rebased >> 20) & 1U)) >> 20;
  return {static_cast<std::uint8_t>(sign | (rounded > 0x7EU ? 0x7EU : rounded))};
}

}  // namespace winnow
