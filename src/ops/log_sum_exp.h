// The logarithm of a softmax's denominator.
#pragma once

#include <span>

namespace winnow::ops {

/// log(sum_i exp(x[i])) to about 1e-6. NaN if an element is NaN or +infinity, or all are -infinity.
double log_sum_exp(std::span<const float> x);

}  // namespace winnow::ops
