#include "ops/activation.h"

#include <cassert>
#include <cmath>
#include <span>

#include "ops/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/activation.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SiluMultiply(std::span<float> gate, std::span<const float> up) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto one = hn::Set(d, 1.0F);
  const auto least = hn::Set(d, -88.0F);
  std::size_t i = 0;
  for (; i + lanes <= gate.size(); i += lanes) {
    const auto x = hn::LoadU(d, gate.data() + i);
    // Highway's Exp does not become infinite for what is too large for it; there silu vanishes.
    const auto seen = hn::Gt(x, least);
    const auto e = hn::Exp(d, hn::Neg(hn::IfThenElseZero(seen, x)));
    const auto silu = hn::IfThenElseZero(seen, hn::Div(x, hn::Add(one, e)));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up.data() + i)), d, gate.data() + i);
  }
  for (; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  }
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(SiluMultiply);

void silu_multiply(Matrix<float> gate, Matrix<const float> up) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  cpu::for_rows(gate.rows, gate.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(SiluMultiply)(gate.row(m), up.row(m));
  });
}

void add(Matrix<float> x, Matrix<const float> y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    float* target = x.row(m).data();
    const float* source = y.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      target[i] += source[i];
    }
  });
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
