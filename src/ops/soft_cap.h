// Soft caps of scores and logits (Gemma 2).
#pragma once

#include "ops/matrix.h"

namespace winnow::ops {

/// x = cap * tanh(x / cap), in place; cap > 0.
void soft_cap(Matrix<float> x, float cap);

/// Backward of soft_cap, in place: converts the gradient of its result, `capped`, to that of its
/// input.
void soft_cap_backward(Matrix<float> dx, Matrix<const float> capped, float cap);

}  // namespace winnow::ops
