// Activations and their derivatives, one number at a time.
#pragma once

#include "ops/activation.h"

namespace winnow::ops::cuda {

/// The value of an activation at x, and its derivative.
struct Curve {
  float value;
  float slope;
};

inline __device__ float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));  // for very negative x this is 1 / infinity
}

template <Activation kKind>
__device__ Curve activation_at(float x) {
  if constexpr (kKind == Activation::silu) {
    const float s = sigmoid(x);
    return {x * s, s + x * s * (1.0F - s)};
  } else if constexpr (kKind == Activation::gelu_tanh) {
    constexpr float kLinear = 0.7978845608F;  // sqrt(2 / pi)
    constexpr float kCubic = kLinear * 0.044715F;
    const float t = tanhf(x * (kLinear + kCubic * x * x));
    const float bend = kLinear + 3.0F * kCubic * x * x;
    const float rest = 0.5F * x * (1.0F - t * t);  // 0 where `bend` may overflow
    return {0.5F * x * (1.0F + t), 0.5F * (1.0F + t) + (rest != 0.0F ? rest * bend : rest)};
  } else if constexpr (kKind == Activation::gelu) {
    constexpr float kRootHalf = 0.7071067812F;
    constexpr float kDensity = 0.3989422804F;  // 1 / sqrt(2 pi)
    const float phi = 0.5F * erfcf(-x * kRootHalf);
    const float density = kDensity * expf(-0.5F * x * x);
    return {x * phi, phi + x * density};
  } else {
    static_assert(kKind == Activation::relu_squared);
    const float relu = x < 0.0F ? 0.0F : x;  // keeps a NaN
    return {relu * relu, 2.0F * relu};
  }
}

/// The value of a gated unit, and the gradients of both factors for a gradient of 1.
struct GatedCurve {
  float value;
  float dgate;
  float dup;
};

template <Activation kKind>
struct GatedUnit {
  __device__ GatedCurve operator()(float gate, float up) const {
    const Curve curve = activation_at<kKind>(gate);
    return {curve.value * up, curve.slope * up, curve.value};
  }
};

/// gpt-oss's: gate sigmoid(1.702 gate) (up + 1), of clamped inputs.
struct ClampedUnit {
  static constexpr float kSharpness = 1.702F;
  float limit;

  __device__ GatedCurve operator()(float gate, float up) const {
    const bool gate_free = !(gate > limit);
    const bool up_free = !(fabsf(up) > limit);
    const float g = gate_free ? gate : limit;
    const float u = 1.0F + (up_free ? up : copysignf(limit, up));
    const float s = sigmoid(kSharpness * g);
    const float slope = s + kSharpness * g * s * (1.0F - s);
    return {g * s * u, gate_free ? slope * u : 0.0F, up_free ? g * s : 0.0F};
  }
};

}  // namespace winnow::ops::cuda
