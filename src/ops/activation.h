// Elementwise parts of a layer.
#pragma once

#include <cstdint>

#include "ops/matrix.h"

namespace winnow::ops {

/// The activation of an MLP's channels: x sigmoid(x); x Phi(x) with the normal distribution's Phi,
/// exact or with the tanh approximation of Hendrycks and Gimpel (2016); max(x, 0)^2.
enum class Activation : std::uint8_t { silu, gelu_tanh, gelu, relu_squared };

/// A gated linear unit: act(gate) * up. A limit selects gpt-oss's variant, with silu: the gate
/// is clamped to (-inf, limit] and up to [-limit, limit], and the result is
/// gate sigmoid(1.702 gate) (up + 1).
struct GatedActivation {
  Activation kind = Activation::silu;
  float limit = 0.0F;       // 0: none
  float gate_scale = 1.0F;  // multiplies the gate first

  [[nodiscard]] bool is_swiglu() const {
    return kind == Activation::silu && limit == 0.0F && gate_scale == 1.0F;
  }
};

/// x = act(x), in place.
void activate(Activation activation, Matrix<float> x);

/// Backward of out = act(x): the gradient of x from the result's gradient. dx may be dout.
void activate_backward(Activation activation, Matrix<float> dx, Matrix<const float> dout,
                       Matrix<const float> x);

/// gate = act(gate) * up, in place.
void activate_multiply(const GatedActivation& activation, Matrix<float> gate,
                       Matrix<const float> up);

/// Backward of out = act(gate) * up: the gradients of both factors from the result's gradient.
/// dgate or dup may be dout. gate_scale must be 1.
void activate_multiply_backward(const GatedActivation& activation, Matrix<float> dgate,
                                Matrix<float> dup, Matrix<const float> dout,
                                Matrix<const float> gate, Matrix<const float> up);

/// SwiGLU: gate = silu(gate) * up, in place.
inline void silu_multiply(Matrix<float> gate, Matrix<const float> up) {
  activate_multiply({}, gate, up);
}

/// Backward of out = silu(gate) * up.
inline void silu_multiply_backward(Matrix<float> dgate, Matrix<float> dup, Matrix<const float> dout,
                                   Matrix<const float> gate, Matrix<const float> up) {
  activate_multiply_backward({}, dgate, dup, dout, gate, up);
}

/// x *= sigmoid(gate).
void sigmoid_multiply(Matrix<float> x, Matrix<const float> gate);

/// Backward of out = x sigmoid(gate): the gradients of both from the result's gradient. dx may be
/// dout.
void sigmoid_multiply_backward(Matrix<float> dx, Matrix<float> dgate, Matrix<const float> dout,
                               Matrix<const float> x, Matrix<const float> gate);

/// x *= y.
void multiply(Matrix<float> x, Matrix<const float> y);

/// x += y.
void add(Matrix<float> x, Matrix<const float> y);

/// x *= factor.
void scale(Matrix<float> x, float factor);

}  // namespace winnow::ops
