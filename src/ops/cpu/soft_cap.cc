#include "ops/cpu/soft_cap.h"

#include <cassert>
#include <cstddef>

#include "ops/cpu/rows.h"
#include "ops/soft_cap.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/soft_cap.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Processes as many whole vectors as there are from index `i` on; returns the index after them.
template <class D>
HWY_INLINE std::size_t SoftCapVectors(D d, std::span<float> x, std::size_t i, float cap) {
  const auto caps = hn::Set(d, cap);
  const auto inverse = hn::Set(d, 1.0F / cap);
  for (; i + hn::Lanes(d) <= x.size(); i += hn::Lanes(d)) {
    const auto ratio = hn::Mul(hn::LoadU(d, x.data() + i), inverse);
    hn::StoreU(hn::Mul(hn::Tanh(d, ratio), caps), d, x.data() + i);
  }
  return i;
}

void SoftCap(std::span<float> x, float cap) {
  const std::size_t rest = SoftCapVectors(hn::ScalableTag<float>(), x, 0, cap);
  SoftCapVectors(hn::CappedTag<float, 1>(), x, rest, cap);
}

}  // namespace winnow::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {
namespace cpu {

HWY_EXPORT(SoftCap);

void soft_cap(std::span<float> x, float cap) {
  HWY_DYNAMIC_DISPATCH(SoftCap)(x, cap);
}

void soft_cap_backward(std::span<float> dx, std::span<const float> capped, float cap) {
  assert(dx.size() == capped.size());
  const float inverse = 1.0F / cap;
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const float ratio = capped[i] * inverse;
    dx[i] *= 1.0F - ratio * ratio;
  }
}

}  // namespace cpu

void soft_cap(Matrix<float> x, float cap) {
  assert(cap > 0.0F);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) { cpu::soft_cap(x.row(m), cap); });
}

void soft_cap_backward(Matrix<float> dx, Matrix<const float> capped, float cap) {
  assert(cap > 0.0F && dx.rows == capped.rows && dx.cols == capped.cols);
  cpu::for_rows(dx.rows, dx.cols,
                [&](std::size_t m) { cpu::soft_cap_backward(dx.row(m), capped.row(m), cap); });
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
