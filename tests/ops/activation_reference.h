// Activations by their definitions, in double.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/activation.h"

namespace winnow::ops::testing {

inline double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::silu:
      return x / (1.0 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::relu_squared:
      return x > 0.0 ? x * x : 0.0;
  }
  return std::nan("");
}

inline double activated(const GatedActivation& activation, double gate, double up) {
  if (activation.limit > 0.0F) {
    const double limit = activation.limit;
    const double x = std::min(gate, limit);
    return (std::clamp(up, -limit, limit) + 1.0) * x / (1.0 + std::exp(-1.702 * x));
  }
  return activated(activation.kind, gate) * up;
}

}  // namespace winnow::ops::testing
