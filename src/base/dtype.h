// Element types of tensors, and the scalar conversions between them and float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace winnow {

enum class DType : std::uint8_t { f32, f16, bf16, f8e4m3, i8, i32, i64 };

constexpr std::size_t dtype_size(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f8e4m3:
    case DType::i8:
      return 1;
    case DType::i64:
      return 8;
  }
  return 0;
}

/// The name used in messages and on the command line: "fp32", "bf16", ...
std::string_view dtype_name(DType type);

/// bfloat16 as its bit pattern: the upper half of an IEEE float.
struct bf16 {
  std::uint16_t bits = 0;
};

/// IEEE binary16 as its bit pattern.
struct f16 {
  std::uint16_t bits = 0;
};

/// OCP fp8 e4m3 as its bit pattern: bias 7, no infinities, NaN = S.1111.111, largest 448.
struct f8e4m3 {
  std::uint8_t bits = 0;
};

inline constexpr float kF8E4M3Max = 448.0F;

constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
constexpr float to_float(float x) {
  return x;
}
float to_float(f16 x);
float to_float(f8e4m3 x);

/// Rounds to nearest even; NaN stays NaN.
constexpr bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

/// Rounds to nearest even; values that are too large become infinity.
f16 to_f16(float x);

/// Rounds to nearest even and saturates at +-448; NaN stays NaN.
f8e4m3 to_f8e4m3(float x);

}  // namespace winnow
