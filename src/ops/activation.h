// Elementwise parts of a layer.
#pragma once

#include "ops/matrix.h"

namespace winnow::ops {

/// SwiGLU: gate = silu(gate) * up, in place.
void silu_multiply(Matrix<float> gate, Matrix<const float> up);

/// x += y.
void add(Matrix<float> x, Matrix<const float> y);

}  // namespace winnow::ops
