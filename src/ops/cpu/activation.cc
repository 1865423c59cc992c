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

// 1 / x, to a bit or so. Dividing is most of what a sigmoid costs where vectors are wide; for
// narrow ones there is no guess of as many bits.
template <class D>
HWY_INLINE hn::Vec<D> Reciprocal(D d, hn::Vec<D> x) {
  if constexpr (HWY_TARGET <= HWY_AVX3 && hn::MaxLanes(D()) >= 16) {
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

// at() of an activation: what it gives for x, and how that changes with x. Callers that take the
// value alone do not compute the slope: all of this is inlined.

struct Silu {
  template <class D>
  static HWY_INLINE void at(D d, hn::Vec<D> x, hn::Vec<D>& value, hn::Vec<D>& slope) {
    const auto sigmoid = Sigmoid(d, x);
    value = hn::Mul(x, sigmoid);
    slope = hn::MulAdd(value, hn::Sub(hn::Set(d, 1.0F), sigmoid), sigmoid);
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2u), here of 2u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  template <class D>
  static HWY_INLINE void at(D d, hn::Vec<D> x, hn::Vec<D>& value, hn::Vec<D>& slope) {
    const auto linear = hn::Set(d, 1.5957691216F);
    const auto cubic = hn::Set(d, 1.5957691216F * 0.044715F);
    // Further out the sigmoid is 0 or 1, and the cube could overflow.
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

// Phi by Abramowitz and Stegun's 7.1.26, to 1e-7. The slope is Phi(x) + x phi(x).
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

// out() of a gated unit, and backward(): the gradients of its gate and of its other half.
template <class Act>
struct Gated {
  template <class D>
  HWY_INLINE hn::Vec<D> out(D d, hn::Vec<D> gate, hn::Vec<D> up) const {
    return hn::Mul(ValueAt<Act>(d, gate), up);
  }
  template <class D>
  HWY_INLINE void backward(D d, hn::Vec<D> dout, hn::Vec<D> gate, hn::Vec<D> up, hn::Vec<D>& dgate,
                           hn::Vec<D>& dup) const {
    hn::Vec<D> value;
    hn::Vec<D> slope;
    Act::at(d, gate, value, slope);
    dgate = hn::Mul(hn::Mul(dout, up), slope);
    dup = hn::Mul(dout, value);
  }
};

// With z = 1.702 x, x sigmoid(1.702 x) is silu(z) / 1.702, and its slope is that of silu at z.
// What is clamped has no gradient.
struct ClampedGated {
  static constexpr float kSharpness = 1.702F;
  float limit;

  template <class D>
  HWY_INLINE hn::Vec<D> out(D d, hn::Vec<D> gate, hn::Vec<D> up) const {
    const auto x = hn::Min(gate, hn::Set(d, limit));
    const auto sigmoid = Sigmoid(d, hn::Mul(x, hn::Set(d, kSharpness)));
    return hn::Mul(hn::Mul(x, sigmoid), hn::Add(clamped(d, up), hn::Set(d, 1.0F)));
  }
  template <class D>
  HWY_INLINE void backward(D d, hn::Vec<D> dout, hn::Vec<D> gate, hn::Vec<D> up, hn::Vec<D>& dgate,
                           hn::Vec<D>& dup) const {
    const auto most = hn::Set(d, limit);
    const auto z = hn::Mul(hn::Min(gate, most), hn::Set(d, kSharpness));
    hn::Vec<D> silu;
    hn::Vec<D> slope;
    Silu::at(d, z, silu, slope);
    const auto value = hn::Mul(silu, hn::Set(d, 1.0F / kSharpness));
    const auto weighted = hn::Mul(dout, hn::Add(clamped(d, up), hn::Set(d, 1.0F)));
    dgate = hn::IfThenElseZero(hn::Le(gate, most), hn::Mul(weighted, slope));
    dup = hn::IfThenElseZero(hn::Le(hn::Abs(up), most), hn::Mul(dout, value));
  }

 private:
  template <class D>
  HWY_INLINE hn::Vec<D> clamped(D d, hn::Vec<D> up) const {
    const auto most = hn::Set(d, limit);
    return hn::Max(hn::Min(up, most), hn::Neg(most));
  }
};

// The functions below take the numbers from `i` on of which there are whole vectors, and return the
// number behind them.
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

template <class Glu, class D>
HWY_INLINE std::size_t MultiplyFrom(D d, std::size_t i, const Glu& glu, std::span<float> gate,
                                    std::span<const float> up) {
  for (; i + hn::Lanes(d) <= gate.size(); i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, gate.data() + i);
    hn::StoreU(glu.out(d, x, hn::LoadU(d, up.data() + i)), d, gate.data() + i);
  }
  return i;
}

template <class Glu, class D>
HWY_INLINE std::size_t MultiplyBackwardFrom(D d, std::size_t i, const Glu& glu,
                                            std::span<float> dgate, std::span<float> dup,
                                            std::span<const float> dout,
                                            std::span<const float> gate,
                                            std::span<const float> up) {
  for (; i + hn::Lanes(d) <= gate.size(); i += hn::Lanes(d)) {
    hn::Vec<D> of_gate;
    hn::Vec<D> of_up;
    glu.backward(d, hn::LoadU(d, dout.data() + i), hn::LoadU(d, gate.data() + i),
                 hn::LoadU(d, up.data() + i), of_gate, of_up);
    hn::StoreU(of_gate, d, dgate.data() + i);
    hn::StoreU(of_up, d, dup.data() + i);
  }
  return i;
}

template <class D>
HWY_INLINE std::size_t GateFrom(D d, std::size_t i, std::span<float> x,
                                std::span<const float> gate) {
  for (; i + hn::Lanes(d) <= x.size(); i += hn::Lanes(d)) {
    const auto factor = Sigmoid(d, hn::LoadU(d, gate.data() + i));
    hn::StoreU(hn::Mul(hn::LoadU(d, x.data() + i), factor), d, x.data() + i);
  }
  return i;
}

template <class D>
HWY_INLINE std::size_t GateBackwardFrom(D d, std::size_t i, std::span<float> dx,
                                        std::span<float> dgate, std::span<const float> dout,
                                        std::span<const float> x, std::span<const float> gate) {
  for (; i + hn::Lanes(d) <= x.size(); i += hn::Lanes(d)) {
    const auto factor = Sigmoid(d, hn::LoadU(d, gate.data() + i));
    const auto gradient = hn::Mul(hn::LoadU(d, dout.data() + i), factor);
    const auto rest = hn::Sub(hn::Set(d, 1.0F), factor);
    hn::StoreU(hn::Mul(hn::Mul(gradient, hn::LoadU(d, x.data() + i)), rest), d, dgate.data() + i);
    hn::StoreU(gradient, d, dx.data() + i);
  }
  return i;
}

using Vectors = hn::ScalableTag<float>;
using Single = hn::CappedTag<float, 1>;

// What is left of a row.
template <class Glu>
HWY_INLINE void MultiplyRest(std::size_t i, const Glu& glu, std::span<float> gate,
                             std::span<const float> up) {
  MultiplyFrom(Single(), i, glu, gate, up);
}

template <class Glu>
HWY_INLINE void MultiplyBackwardRest(std::size_t i, const Glu& glu, std::span<float> dgate,
                                     std::span<float> dup, std::span<const float> dout,
                                     std::span<const float> gate, std::span<const float> up) {
  MultiplyBackwardFrom(Single(), i, glu, dgate, dup, dout, gate, up);
}

// SwiGLU's by the C library's exponential: training that goes on from an older checkpoint gets the
// bits that it got before.
HWY_INLINE void MultiplyRest(std::size_t i, const Gated<Silu>&, std::span<float> gate,
                             std::span<const float> up) {
  for (; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  }
}

HWY_INLINE void MultiplyBackwardRest(std::size_t i, const Gated<Silu>&, std::span<float> dgate,
                                     std::span<float> dup, std::span<const float> dout,
                                     std::span<const float> gate, std::span<const float> up) {
  for (; i < gate.size(); ++i) {
    const float gradient = dout[i];
    const float sigmoid = 1.0F / (1.0F + std::exp(-gate[i]));
    const float silu = gate[i] * sigmoid;
    dgate[i] = gradient * up[i] * (sigmoid + silu * (1.0F - sigmoid));
    dup[i] = gradient * silu;
  }
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

// Calls f with what computes the gated unit.
template <class F>
HWY_INLINE void with_glu(const GatedActivation& activation, const F& f) {
  if (activation.limit > 0.0F) {
    return f(ClampedGated{activation.limit});
  }
  with_activation(activation.kind, [&]<class Act>(Act) HWY_ATTR { f(Gated<Act>()); });
}

void ActivateMultiply(const GatedActivation& activation, std::span<float> gate,
                      std::span<const float> up) {
  with_glu(activation, [&](const auto& glu) HWY_ATTR {
    const std::size_t rest = MultiplyFrom(Vectors(), 0, glu, gate, up);
    MultiplyRest(rest, glu, gate, up);
  });
}

void ActivateMultiplyBackward(const GatedActivation& activation, std::span<float> dgate,
                              std::span<float> dup, std::span<const float> dout,
                              std::span<const float> gate, std::span<const float> up) {
  with_glu(activation, [&](const auto& glu) HWY_ATTR {
    const std::size_t rest = MultiplyBackwardFrom(Vectors(), 0, glu, dgate, dup, dout, gate, up);
    MultiplyBackwardRest(rest, glu, dgate, dup, dout, gate, up);
  });
}

void Gate(std::span<float> x, std::span<const float> gate) {
  GateFrom(Single(), GateFrom(Vectors(), 0, x, gate), x, gate);
}

void GateBackward(std::span<float> dx, std::span<float> dgate, std::span<const float> dout,
                  std::span<const float> x, std::span<const float> gate) {
  const std::size_t rest = GateBackwardFrom(Vectors(), 0, dx, dgate, dout, x, gate);
  GateBackwardFrom(Single(), rest, dx, dgate, dout, x, gate);
}

}  // namespace winnow::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::ops {

HWY_EXPORT(Activate);
HWY_EXPORT(ActivateBackward);
HWY_EXPORT(ActivateMultiply);
HWY_EXPORT(ActivateMultiplyBackward);
HWY_EXPORT(Gate);
HWY_EXPORT(GateBackward);

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

void activate_multiply(const GatedActivation& activation, Matrix<float> gate,
                       Matrix<const float> up) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  assert(activation.limit == 0.0F || activation.kind == Activation::silu);
  if (activation.gate_scale != 1.0F) {
    scale(gate, activation.gate_scale);
  }
  cpu::for_rows(gate.rows, gate.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(ActivateMultiply)(activation, gate.row(m), up.row(m));
  });
}

void activate_multiply_backward(const GatedActivation& activation, Matrix<float> dgate,
                                Matrix<float> dup, Matrix<const float> dout,
                                Matrix<const float> gate, Matrix<const float> up) {
  assert(gate.rows == up.rows && gate.cols == up.cols);
  assert(dout.rows == gate.rows && dout.cols == gate.cols);
  assert(activation.limit == 0.0F || activation.kind == Activation::silu);
  assert(activation.gate_scale == 1.0F);
  cpu::for_rows(gate.rows, gate.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(ActivateMultiplyBackward)
    (activation, dgate.row(m), dup.row(m), dout.row(m), gate.row(m), up.row(m));
  });
}

void sigmoid_multiply(Matrix<float> x, Matrix<const float> gate) {
  assert(x.rows == gate.rows && x.cols == gate.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(Gate)(x.row(m), gate.row(m));
  });
}

void sigmoid_multiply_backward(Matrix<float> dx, Matrix<float> dgate, Matrix<const float> dout,
                               Matrix<const float> x, Matrix<const float> gate) {
  assert(dx.rows == x.rows && dx.cols == x.cols && gate.rows == x.rows && gate.cols == x.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    HWY_DYNAMIC_DISPATCH(GateBackward)
    (dx.row(m), dgate.row(m), dout.row(m), x.row(m), gate.row(m));
  });
}

void multiply(Matrix<float> x, Matrix<const float> y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    float* target = x.row(m).data();
    const float* source = y.row(m).data();
    for (std::size_t i = 0; i < x.cols; ++i) {
      target[i] *= source[i];
    }
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

void scale(Matrix<float> x, float factor) {
  cpu::for_rows(x.rows, x.cols, [&](std::size_t m) {
    for (float& value : x.row(m)) {
      value *= factor;
    }
  });
}

}  // namespace winnow::ops
#endif  // HWY_ONCE
