// Root-mean-square normalisation.
#pragma once

#include <span>

#include "ops/matrix.h"

namespace winnow::ops {

/// out[m, :] = x[m, :] / sqrt(mean(x[m, :]^2) + eps) * weight. out may be x.
void rms_norm(Matrix<float> out, Matrix<const float> x, std::span<const float> weight, float eps);

}  // namespace winnow::ops
