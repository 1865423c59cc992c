// Root-mean-square normalisation.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// out[m, :] = x[m, :] / sqrt(mean(x[m, :]^2) + eps) * (offset + weight). out may be x. The offset
/// is 1 where weights are kept as what differs from 1 (Gemma).
void rms_norm(Matrix<float> out, Matrix<const float> x, std::span<const float> weight, float eps,
              float offset = 0.0F);

/// Backward of rms_norm: adds the gradients of x [M, N] to dx and of weight [N] to dweight (empty:
/// not computed), given that of the result. The sums over rows do not depend on the number of
/// threads.
void rms_norm_backward(Workspace& workspace, Matrix<float> dx, std::span<float> dweight,
                       Matrix<const float> dout, Matrix<const float> x,
                       std::span<const float> weight, float eps, float offset = 0.0F);

}  // namespace winnow::ops
