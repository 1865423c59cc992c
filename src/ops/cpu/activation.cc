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

// 1 / x, to a bit or so. Dividing is most of what a sigmoid costs where vectors are wide.
template <class D>
HWY_INLINE hn::Vec<D> Reciprocal(D d, hn::Vec<D> x) {
  if constexpr (HWY_TARGET <= HWY_AVX3) {
    const auto guess = hn::ApproximateReciprocal(x);  // 14 bits
    return hn::Mul(guess, hn::NegMulAdd(x, guess, hn::Set(d, 2.0F)));
  }
  return hn::Div(hn::Set(d, 1.0F), x);
}

// 1 / (1 + exp(-x)). Highway's Exp does not become infinite for what is too large for it; there the
// sigmoid vanishes.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0F);
  const auto seen = hn::Gt(x, hn::Set(d, -88.0F));
  const auto e = hn::Exp(d, hn::Neg(hn::IfThenElseZero(seen, x)));
  return hn::IfThenElseZero(seen, Reciprocal(d, hn::Add(one, e)));
}

void SiluMultiply(std::span<float> gate, std::span<const float> up) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= gate.size(); i += lanes) {
    const auto x = hn::LoadU(d, gate.data() + i);
    const auto silu = hn::Mul(x, Sigmoid(d, x));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up.data() + i)), d, gate.data() + i);
  }
  for (; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  }
}

// silu'(x) = s + x s (1 - s) with s = sigmoid(x).
void SiluMultiplyBackward(std::span<float> dgate, std::span<float> dup, std::span<const float> dout,
                          std::span<const float> gate, std::span<const float> up) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto one = hn::Set(d, 1.0F);
  std::size_t i = 0;
  for (; i + lanes <= gate.size(); i += lanes) {
    const auto x = hn::LoadU(d, gate.data() + i);
    const auto gradient = hn::LoadU(d, dout.data() + i);
    const auto sigmoid = Sigmoid(d, x);
    const auto silu = hn::Mul(x, sigmoid);
    const auto slope = hn::MulAdd(silu, hn::Sub(one, sigmoid), sigmoid);
    const auto weighted = hn::Mul(gradient, hn::LoadU(d, up.data() + i));
    hn::StoreU(hn::Mul(weighted, slope), d, dgate.data() + i);
    hn::StoreU(hn::Mul(gradient, silu), d, dup.data() + i);
  }
  for (; i < gate.size(); ++i) {
    const float gradient = dout[i];
    const float sigmoid = 1.0F / (1.0F + std::exp(-gate[i]));
    const float silu = gate[i] * sigmoid;
    dgate[i] = gradient * up[i] * (sigmoid + silu * (1.0F - sigmoid));
    dup[i] = gradient * silu;
  }
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(SiluMultiply);
HWY_EXPORT(SiluMultiplyBackward);

void silu_multiply(Matrix<float> gate, Matrix<const float> up) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  cpu::for_rows(gate.rows, gate.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(SiluMultiply)(gate.row(m), up.row(m));
  });
}

void silu_multiply_backward(Matrix<float> dgate, Matrix<float> dup, Matrix<const float> dout,
                            Matrix<const float> gate, Matrix<const float> up) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  assert(dout.rows == gate.rows && dout.cols == gate.cols);
  cpu::for_rows(gate.rows, gate.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(SiluMultiplyBackward)
    (dgate.row(m), dup.row(m), dout.row(m), gate.row(m), up.row(m));
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
