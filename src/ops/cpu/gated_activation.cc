#include "ops/activation.h"

#include <cassert>
#include <cmath>
#include <span>

#include "ops/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/gated_activation.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "ops/cpu/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out() of a gated unit, and backward(): the gradients of its gate and of its other factor.
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

// With z = 1.702 x, x sigmoid(1.702 x) is silu(z) / 1.702, and its derivative is silu'(z).
// Clamped values have no gradient.
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

// The functions below process as many whole vectors as there are from index `i` on, and return the
// index after the last one.
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

// The rest of a row, less than a vector.
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

// SwiGLU's rest uses the C library's exponential: training that resumes from an older checkpoint
// must reproduce its earlier bits.
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

// Calls f with the type that computes the gated unit.
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

HWY_EXPORT(ActivateMultiply);
HWY_EXPORT(ActivateMultiplyBackward);
HWY_EXPORT(Gate);
HWY_EXPORT(GateBackward);

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

}  // namespace winnow::ops
#endif  // HWY_ONCE
