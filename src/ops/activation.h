// Elementwise parts of a layer.
#pragma once

#include "ops/matrix.h"

namespace winnow::ops {

/// SwiGLU: gate = silu(gate) * up, in place.
void silu_multiply(Matrix<float> gate, Matrix<const float> up);

/// Backward of out = silu(gate) * up: the gradients of both factors, given that of the result.
/// dgate or dup may be dout.
void silu_multiply_backward(Matrix<float> dgate, Matrix<float> dup, Matrix<const float> dout,
                            Matrix<const float> gate, Matrix<const float> up);

/// x += y.
void add(Matrix<float> x, Matrix<const float> y);

}  // namespace winnow::ops
