// Reading stored weights as vectors of float, for the target being compiled (Highway -inl style).

// The guard is per target: foreach_target.h includes this file once for each.
#if defined(WINNOW_OPS_CPU_GEMV_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_OPS_CPU_GEMV_DECODE_INL_H_
#undef WINNOW_OPS_CPU_GEMV_DECODE_INL_H_
#else
#define WINNOW_OPS_CPU_GEMV_DECODE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/weight.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Columns processed at a time: a group of the quantised formats, and several vectors on any
/// target.
inline constexpr std::size_t kGroup = 32;

using FloatTag = hn::CappedTag<float, kGroup>;
using FloatVector = hn::Vec<FloatTag>;

/// Vectors per group.
inline constexpr std::size_t kSteps = kGroup / hn::MaxLanes(FloatTag());

HWY_INLINE FloatVector load_floats(const float* from) {
  return hn::LoadU(FloatTag(), from);
}

HWY_INLINE FloatVector load_floats(const bf16* from) {
  const hn::RebindToUnsigned<FloatTag> d32;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

HWY_INLINE FloatVector load_floats(const f16* from) {
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const hn::Rebind<hwy::float16_t, FloatTag> half;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::PromoteTo(FloatTag(), hn::BitCast(half, bits));
}

// One row of a weight in each format:
//   data       points to the stored row, kBits per column;
//   group(k)   is columns [k, k + kGroup), k a multiple of kGroup;
//   vector(s)  is the s-th vector of such a group, s < kSteps;
//   element(k) is one column.

/// Columns stored one by one: a group is represented by its address.
template <class T>
struct PlainRow {
  static constexpr std::size_t kBits = 8 * sizeof(T);

  struct Group {
    const T* columns;
    HWY_INLINE FloatVector vector(std::size_t s) const {
      return load_floats(columns + s * hn::Lanes(FloatTag()));
    }
  };

  PlainRow() = default;
  explicit PlainRow(const T* row) : data(row) {}
  PlainRow(const Weight& weight, std::size_t row)
      : data(static_cast<const T*>(weight.data) + row * static_cast<std::size_t>(weight.cols)) {}
  HWY_INLINE Group group(std::size_t k) const { return {data + k}; }
  [[nodiscard]] float element(std::size_t k) const { return to_float(data[k]); }

  const T* data = nullptr;
};

using F32Row = PlainRow<float>;
using F16Row = PlainRow<f16>;
using Bf16Row = PlainRow<bf16>;

/// Shared by the quantised formats: signed bytes times their scale. The product is exact: q has 8
/// significant bits and the scale 8.
HWY_INLINE FloatVector scaled(const std::int8_t* q, FloatVector scale) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> d32;
  const hn::Rebind<std::int8_t, FloatTag> d8;
  return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, q))), scale);
}

/// The scale in every lane, without a detour through the integer registers.
HWY_INLINE FloatVector broadcast(bf16 scale) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(FloatTag(), to_float(scale));
#else
  const hn::RebindToUnsigned<FloatTag> d32;
  const hn::Repartition<std::uint16_t, FloatTag> d16;
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::BitCast(d32, hn::Set(d16, scale.bits))));
#endif
}

struct Int8Row {
  static constexpr std::size_t kBits = 8;

  struct Group {
    const std::int8_t* columns;
    FloatVector scale;
    HWY_INLINE FloatVector vector(std::size_t s) const {
      return scaled(columns + s * hn::Lanes(FloatTag()), scale);
    }
  };

  Int8Row() = default;
  Int8Row(const Weight& weight, std::size_t row)
      : data(static_cast<const std::int8_t*>(weight.data) +
             row * static_cast<std::size_t>(weight.cols)),
        scales(weight.scales + row * (static_cast<std::size_t>(weight.cols) / kGroup)) {}
  HWY_INLINE Group group(std::size_t k) const { return {data + k, broadcast(scales[k / kGroup])}; }
  [[nodiscard]] float element(std::size_t k) const {
    return static_cast<float>(data[k]) * to_float(scales[k / kGroup]);
  }

  const std::int8_t* data = nullptr;
  const bf16* scales = nullptr;
};

/// Vector s of a group of nibbles: every lane loads eight lanes' bytes and shifts its own down.
HWY_INLINE auto nibbles(const std::uint8_t* packed, std::size_t s) {
  const hn::RebindToSigned<FloatTag> d;
  constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());
  const std::size_t first = s * kLanes;
  const auto load = [&](std::size_t column) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, packed + column / 2, std::clamp<std::size_t>(kLanes / 2, 1, 4));
    return static_cast<std::int32_t>(bits);
  };
  const auto shifts =
      hn::ShiftLeft<2>(hn::And(hn::Iota(d, static_cast<std::int32_t>(first % 2)), hn::Set(d, 7)));
  auto bits = hn::Set(d, load(first));
  if constexpr (kLanes == 16) {
    bits = hn::IfThenElse(hn::Lt(hn::Iota(d, 0), hn::Set(d, 8)), bits, hn::Set(d, load(first + 8)));
  }
  return hn::And(hn::Shr(bits, shifts), hn::Set(d, 0x0F));
}

struct Int4Row {
  static constexpr std::size_t kBits = 4;

  struct Group {
    const std::uint8_t* packed;
    FloatVector scale;
    FloatVector offset;  // -8 scale
    HWY_INLINE FloatVector vector(std::size_t s) const {
      // scale * stored - 8 scale; exact, as both terms and the result are
      return hn::MulAdd(hn::ConvertTo(FloatTag(), nibbles(packed, s)), scale, offset);
    }
  };

  Int4Row() = default;
  Int4Row(const Weight& weight, std::size_t row)
      : data(static_cast<const std::uint8_t*>(weight.data) +
             row * (static_cast<std::size_t>(weight.cols) / 2)),
        scales(weight.scales + row * (static_cast<std::size_t>(weight.cols) / kGroup)) {}
  HWY_INLINE Group group(std::size_t k) const {
    const FloatVector scale = broadcast(scales[k / kGroup]);
    return {data + k / 2, scale, hn::Mul(scale, hn::Set(FloatTag(), -8.0F))};
  }
  [[nodiscard]] float element(std::size_t k) const {
    const int nibble = (data[k / 2] >> (k % 2 * 4)) & 0x0F;
    return static_cast<float>(nibble - 8) * to_float(scales[k / kGroup]);
  }

  const std::uint8_t* data = nullptr;
  const bf16* scales = nullptr;
};

/// kTwiceE2m1 of every lane.
template <class V>
HWY_INLINE V twice_e2m1(V code) {
  const hn::DFromV<V> d;
  const auto one = hn::Set(d, 1);
  const auto magnitude = hn::And(code, hn::Set(d, 7));
  const auto mantissa = hn::Or(hn::And(magnitude, one), hn::Set(d, 2));
  const auto exponent = hn::Max(hn::Sub(hn::ShiftRight<1>(magnitude), one), hn::Zero(d));
  const auto q =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 4)), magnitude, hn::Shl(mantissa, exponent));
  return hn::IfThenElse(hn::Lt(code, hn::Set(d, 8)), q, hn::Neg(q));
}

struct Mxfp4Row {
  static constexpr std::size_t kBits = 4;

  struct Group {
    const std::uint8_t* packed;
    FloatVector scale;
    HWY_INLINE FloatVector vector(std::size_t s) const {
      return hn::Mul(hn::ConvertTo(FloatTag(), twice_e2m1(nibbles(packed, s))), scale);
    }
  };

  Mxfp4Row() = default;
  Mxfp4Row(const Weight& weight, std::size_t row)
      : data(static_cast<const std::uint8_t*>(weight.data) +
             row * (static_cast<std::size_t>(weight.cols) / 2)),
        scales(weight.scales + row * (static_cast<std::size_t>(weight.cols) / kGroup)) {}
  HWY_INLINE Group group(std::size_t k) const {
    return {data + k / 2, broadcast(scales[k / kGroup])};
  }
  [[nodiscard]] float element(std::size_t k) const {
    const int code = (data[k / 2] >> (k % 2 * 4)) & 0x0F;
    return static_cast<float>(kTwiceE2m1[static_cast<std::size_t>(code)]) *
           to_float(scales[k / kGroup]);
  }

  const std::uint8_t* data = nullptr;
  const bf16* scales = nullptr;
};

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
