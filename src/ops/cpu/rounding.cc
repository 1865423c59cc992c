#include "ops/cpu/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rounding.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RoundToBf16(std::span<const float> from, bf16* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint16_t, decltype(d)> d16;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= from.size(); i += lanes) {
    const auto x = hn::LoadU(d, from.data() + i);
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(hn::Set(du, 0x7FFF), odd));
    const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
    const auto result =
        hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, result)), d16,
               reinterpret_cast<std::uint16_t*>(to) + i);
  }
  for (; i < from.size(); ++i) {
    to[i] = to_bf16(from[i]);
  }
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops::cpu {

HWY_EXPORT(RoundToBf16);

void round_to_bf16(std::span<const float> from, bf16* to) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(from, to);
}

}  // namespace winnow::ops::cpu
#endif  // HWY_ONCE
