// Soft caps of one row, on the calling thread.
#pragma once

#include <span>

namespace winnow::ops::cpu {

/// x[i] = cap * tanh(x[i] / cap).
void soft_cap(std::span<float> x, float cap);

/// dx[i] *= 1 - (capped[i] / cap)^2, the derivative of soft_cap at the input that gave capped[i].
void soft_cap_backward(std::span<float> dx, std::span<const float> capped, float cap);

}  // namespace winnow::ops::cpu
