#include "ops/activation.h"

#include <cassert>
#include <span>

#include "ops/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/activation.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The functions below process as many whole vectors as there are from index `i` on, and return the
// index after the last one.
template <class Act, class D>
HWY_INLINE std::size_t ActivateFrom(D d, std::size_t i, std::span<float> x) {
  for (; i + hn::Lanes(d) <= x.size(); i += hn::Lanes(d)) {
    hn::StoreU(ValueAt<Act>(d, hn::LoadU(d, x.data() + i)), d, x.data() + i);
  }
  return i;
}

template <class Act, class D>
HWY_INLINE std::size_t ActivateBackwardFrom(D d, std::size_t i, std::span<float> dx,
                                            std::span<const float> dout, std::span<const float> x) {
  for (; i + hn::Lanes(d) <= x.size(); i += hn::Lanes(d)) {
    const auto slope = SlopeAt<Act>(d, hn::LoadU(d, x.data() + i));
    hn::StoreU(hn::Mul(hn::LoadU(d, dout.data() + i), slope), d, dx.data() + i);
  }
  return i;
}

void Activate(Activation activation, std::span<float> x) {
  with_activation(activation, [&]<class Act>(Act) HWY_ATTR {
    ActivateFrom<Act>(Single(), ActivateFrom<Act>(Vectors(), 0, x), x);
  });
}

void ActivateBackward(Activation activation, std::span<float> dx, std::span<const float> dout,
                      std::span<const float> x) {
  with_activation(activation, [&]<class Act>(Act) HWY_ATTR {
    const std::size_t rest = ActivateBackwardFrom<Act>(Vectors(), 0, dx, dout, x);
    ActivateBackwardFrom<Act>(Single(), rest, dx, dout, x);
  });
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(Activate);
HWY_EXPORT(ActivateBackward);

void activate(Activation activation, Matrix<float> x) {
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(Activate)(activation, x.row(m));
  });
}

void activate_backward(Activation activation, Matrix<float> dx, Matrix<const float> dout,
                       Matrix<const float> x) {
  assert(dx.rows == x.rows && dx.cols == x.cols && dout.rows == x.rows && dout.cols == x.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(ActivateBackward)(activation, dx.row(m), dout.row(m), x.row(m));
  });
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
