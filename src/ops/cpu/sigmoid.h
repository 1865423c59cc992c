// The logistic function of one number.
#pragma once

#include <cmath>

namespace winnow::ops {

inline float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

}  // namespace winnow::ops
