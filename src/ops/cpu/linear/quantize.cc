#include "ops/cpu/linear/quantize.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear/quantize.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#ifndef WINNOW_OPS_CPU_QUANTIZE_CC_ONCE
#define WINNOW_OPS_CPU_QUANTIZE_CC_ONCE
namespace winnow::ops::cpu {

inline constexpr auto kGroup = static_cast<std::size_t>(QuantizedWeight::kGroup);
/// Groups processed in parallel, at least as many as a vector has lanes.
inline constexpr std::size_t kTogether = 16;

/// Interleaved values or codes of groups: a vector holds one element of each group.
template <class T>
struct alignas(64) Groups {
  T of[kGroup][kTogether] = {};
};

}  // namespace winnow::ops::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, kTogether>;
using Vector = hn::Vec<Tag>;

/// Each lane works on its own group, from group `lane` on.
class Lanes {
 public:
  Lanes(const Groups<float>& values, std::size_t lane) : values_(values), lane_(lane) {}

  HWY_INLINE Vector operator[](std::size_t i) const {
    return hn::Load(Tag(), &values_.of[i][lane_]);
  }

 private:
  const Groups<float>& values_;
  std::size_t lane_;
};

struct Range {
  float low;
  float high;
};
constexpr Range kInt8{-127.0F, 127.0F};
constexpr Range kInt4{-8.0F, 7.0F};

/// To nearest even; x must not be NaN.
HWY_INLINE Vector rounded_to_bf16(Vector x) {
  const hn::RebindToUnsigned<Tag> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(du, 0x7FFF), odd));
  return hn::BitCast(Tag(), hn::And(rounded, hn::Set(du, 0xFFFF0000)));
}

/// 1 / scale, or 0 if the scale is 0.
HWY_INLINE Vector inverse(Vector scale) {
  const Tag d;
  return hn::IfThenZeroElse(hn::Eq(scale, hn::Zero(d)), hn::Div(hn::Set(d, 1.0F), scale));
}

/// value / scale, rounded to the nearest integer in the range.
HWY_INLINE Vector quantize(Vector value, Vector inverse_scale, Range range) {
  const Tag d;
  const auto q = hn::Round(hn::Mul(value, inverse_scale));
  return hn::Min(hn::Max(q, hn::Set(d, range.low)), hn::Set(d, range.high));
}

HWY_INLINE Vector largest_magnitude(const Lanes& values) {
  auto largest = hn::Zero(Tag());
  for (std::size_t i = 0; i < kGroup; ++i) {
    largest = hn::Max(largest, hn::Abs(values[i]));
  }
  return largest;
}

/// The scale that fits values = scale * q best, with q the values quantised with `scale`.
HWY_INLINE Vector refit_int4(const Lanes& values, Vector scale) {
  const Tag d;
  const auto factor = inverse(scale);
  auto products = hn::Zero(d);
  auto squares = hn::Zero(d);
  for (std::size_t i = 0; i < kGroup; ++i) {
    const auto value = values[i];
    const auto q = quantize(value, factor, kInt4);
    products = hn::Add(products, hn::Mul(value, q));
    squares = hn::Add(squares, hn::Mul(q, q));
  }
  const auto none = hn::Eq(squares, hn::Zero(d));
  return hn::IfThenZeroElse(none, rounded_to_bf16(hn::Div(products, squares)));
}

HWY_INLINE Vector int4_error(const Lanes& values, Vector scale) {
  const auto factor = inverse(scale);
  auto error = hn::Zero(Tag());
  for (std::size_t i = 0; i < kGroup; ++i) {
    const auto value = values[i];
    const auto miss = hn::Sub(value, hn::Mul(scale, quantize(value, factor, kInt4)));
    error = hn::Add(error, hn::Mul(miss, miss));
  }
  return error;
}

/// The search starts at scales that put the largest magnitude at 6 to 10 steps (8 or more clips).
HWY_INLINE Vector int4_scale(const Lanes& values) {
  constexpr int kCandidates = 17;
  const Tag d;
  const auto largest = largest_magnitude(values);
  auto best = hn::Zero(d);
  auto best_error = int4_error(values, best);
  for (int i = 0; i < kCandidates; ++i) {
    const auto steps = hn::Set(d, 6.0F + 0.25F * static_cast<float>(i));
    for (const float sign : {1.0F, -1.0F}) {
      const auto signed_largest = hn::Mul(largest, hn::Set(d, sign));
      const auto scale = refit_int4(values, rounded_to_bf16(hn::Div(signed_largest, steps)));
      const auto error = int4_error(values, scale);
      const auto better = hn::Lt(error, best_error);
      best = hn::IfThenElse(better, scale, best);
      best_error = hn::IfThenElse(better, error, best_error);
    }
  }
  return best;
}

void QuantizeTogether(WeightFormat format, const Groups<float>& all, Groups<std::int32_t>& codes,
                      float* scales) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const bool int8 = format == WeightFormat::int8;
  for (std::size_t lane = 0; lane < kTogether; lane += hn::Lanes(d)) {
    const Lanes values(all, lane);
    const auto scale = int8
                           ? rounded_to_bf16(hn::Div(largest_magnitude(values), hn::Set(d, 127.0F)))
                           : int4_scale(values);
    const auto factor = inverse(scale);
    hn::StoreU(scale, d, scales + lane);
    for (std::size_t i = 0; i < kGroup; ++i) {
      const auto q = quantize(values[i], factor, int8 ? kInt8 : kInt4);
      hn::Store(hn::ConvertTo(di, q), di, &codes.of[i][lane]);
    }
  }
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops::cpu {
namespace {

void write_int8(const Groups<std::int32_t>& codes, std::size_t group, std::uint8_t* out) {
  for (std::size_t i = 0; i < kGroup; ++i) {
    out[i] = static_cast<std::uint8_t>(codes.of[i][group]);
  }
}

void write_int4(const Groups<std::int32_t>& codes, std::size_t group, std::uint8_t* out) {
  for (std::size_t i = 0; i < kGroup; i += 2) {
    const auto even = static_cast<unsigned>(codes.of[i][group] + 8);
    const auto odd = static_cast<unsigned>(codes.of[i + 1][group] + 8);
    out[i / 2] = static_cast<std::uint8_t>(even | (odd << 4));
  }
}

}  // namespace

HWY_EXPORT(QuantizeTogether);

void quantize_groups(WeightFormat format, std::span<const float> values, std::uint8_t* codes,
                     bf16* scales) {
  assert(is_quantized(format) && values.size() % kGroup == 0);
  const auto write = format == WeightFormat::int8 ? write_int8 : write_int4;
  const std::size_t group_bytes = format == WeightFormat::int8 ? kGroup : kGroup / 2;
  const std::size_t groups = values.size() / kGroup;
  Groups<float> together;
  Groups<std::int32_t> integers;
  float found[kTogether];
  for (std::size_t first = 0; first < groups; first += kTogether) {
    const std::size_t count = std::min(kTogether, groups - first);
    for (std::size_t g = 0; g < count; ++g) {
      for (std::size_t i = 0; i < kGroup; ++i) {
        together.of[i][g] = values[(first + g) * kGroup + i];
      }
    }
    HWY_DYNAMIC_DISPATCH(QuantizeTogether)(format, together, integers, found);
    for (std::size_t g = 0; g < count; ++g) {
      scales[first + g] = to_bf16(found[g]);
      write(integers, g, codes + (first + g) * group_bytes);
    }
  }
}

}  // namespace winnow::ops::cpu
#endif  // HWY_ONCE
