// Activation functions and their derivatives, for the target being compiled (Highway -inl style).

// The guard is per target: foreach_target.h includes this file once for each.
#if defined(WINNOW_OPS_CPU_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_OPS_CPU_ACTIVATIONS_INL_H_
#undef WINNOW_OPS_CPU_ACTIVATIONS_INL_H_
#else
#define WINNOW_OPS_CPU_ACTIVATIONS_INL_H_
#endif

#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"
#include "ops/activation.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Vectors = hn::ScalableTag<float>;
using Single = hn::CappedTag<float, 1>;

// 1 / x, to about one bit. Division is most of a sigmoid's cost on wide vectors. For narrow vectors
// no approximation is precise enough for one refinement.
template <class D>
HWY_INLINE hn::Vec<D> Reciprocal(D d, hn::Vec<D> x) {
  if constexpr (HWY_TARGET <= HWY_AVX3 && hn::MaxLanes(D()) >= 16) {
    const auto guess = hn::ApproximateReciprocal(x);  // 14 bits
    return hn::Mul(guess, hn::NegMulAdd(x, guess, hn::Set(d, 2.0F)));
  }
  return hn::Div(hn::Set(d, 1.0F), x);
}

// 1 / (1 + exp(-x)). Highway's Exp does not overflow to infinity for arguments that are too large;
// for these the sigmoid is set to zero.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0F);
  const auto seen = hn::Gt(x, hn::Set(d, -88.0F));
  const auto e = hn::Exp(d, hn::Neg(hn::IfThenElseZero(seen, x)));
  return hn::IfThenElseZero(seen, Reciprocal(d, hn::Add(one, e)));
}

// at() of an activation: its value at x and its derivative. For callers that use only the value the
// derivative is not computed: everything is inlined.

struct Silu {
  template <class D>
  static HWY_INLINE void at(D d, hn::Vec<D> x, hn::Vec<D>& value, hn::Vec<D>& slope) {
    const auto sigmoid = Sigmoid(d, x);
    value = hn::Mul(x, sigmoid);
    slope = hn::MulAdd(value, hn::Sub(hn::Set(d, 1.0F), sigmoid), sigmoid);
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2u), with 2u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  template <class D>
  static HWY_INLINE void at(D d, hn::Vec<D> x, hn::Vec<D>& value, hn::Vec<D>& slope) {
    const auto linear = hn::Set(d, 1.5957691216F);
    const auto cubic = hn::Set(d, 1.5957691216F * 0.044715F);
    // Beyond this bound the sigmoid is 0 or 1, and the cube could overflow.
    const auto bound = hn::Set(d, 12.0F);
    const auto c = hn::Max(hn::Min(x, bound), hn::Neg(bound));
    const auto square = hn::Mul(c, c);
    const auto sigmoid = Sigmoid(d, hn::Mul(c, hn::MulAdd(cubic, square, linear)));
    const auto bend = hn::MulAdd(hn::Mul(cubic, hn::Set(d, 3.0F)), square, linear);
    value = hn::Mul(x, sigmoid);
    const auto rest = hn::Mul(value, hn::Sub(hn::Set(d, 1.0F), sigmoid));
    slope = hn::MulAdd(rest, bend, sigmoid);
  }
};

// Phi by Abramowitz and Stegun's 7.1.26, to 1e-7. The derivative is Phi(x) + x phi(x).
struct Gelu {
  template <class D>
  static HWY_INLINE void at(D d, hn::Vec<D> x, hn::Vec<D>& value, hn::Vec<D>& slope) {
    const auto one = hn::Set(d, 1.0F);
    const auto size = hn::Abs(x);
    const auto t = Reciprocal(d, hn::MulAdd(size, hn::Set(d, 0.3275911F * 0.7071067812F), one));
    auto sum = hn::Set(d, 1.061405429F);
    for (const float factor : {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F}) {
      sum = hn::MulAdd(sum, t, hn::Set(d, factor));
    }
    const auto bell = hn::Exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5F)));
    const auto tail = hn::Mul(hn::Mul(hn::Mul(sum, t), bell), hn::Set(d, 0.5F));
    const auto phi = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(one, tail), tail);
    const auto density = hn::Mul(bell, hn::Set(d, 0.3989422804F));
    value = hn::Mul(x, phi);
    slope = hn::MulAdd(x, density, phi);
  }
};

struct ReluSquared {
  template <class D>
  static HWY_INLINE void at(D d, hn::Vec<D> x, hn::Vec<D>& value, hn::Vec<D>& slope) {
    const auto relu = hn::Max(x, hn::Zero(d));
    value = hn::Mul(relu, relu);
    slope = hn::Add(relu, relu);
  }
};

// Calls f with a tag type for `activation`.
template <class F>
HWY_INLINE void with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::silu:
      return f(Silu());
    case Activation::gelu_tanh:
      return f(GeluTanh());
    case Activation::gelu:
      return f(Gelu());
    case Activation::relu_squared:
      return f(ReluSquared());
  }
}

template <class Act, class D>
HWY_INLINE hn::Vec<D> ValueAt(D d, hn::Vec<D> x) {
  hn::Vec<D> value;
  hn::Vec<D> slope;
  Act::at(d, x, value, slope);
  return value;
}

template <class Act, class D>
HWY_INLINE hn::Vec<D> SlopeAt(D d, hn::Vec<D> x) {
  hn::Vec<D> value;
  hn::Vec<D> slope;
  Act::at(d, x, value, slope);
  return slope;
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
