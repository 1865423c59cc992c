// Root-mean-square normalisation, and LayerNorm.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// out[m, :] = x[m, :] / sqrt(mean(x[m, :]^2) + eps) * (offset + weight). out may be x. The offset
/// is 1 for weights stored as their difference from 1 (Gemma).
void rms_norm(Matrix<float> out, Matrix<const float> x, std::span<const float> weight, float eps,
              float offset = 0.0F);

/// Backward of rms_norm: adds the gradients of x [M, N] to dx and of weight [N] to dweight (empty:
/// not computed), from the result's gradient. Sums over rows do not depend on the number of
/// threads.
void rms_norm_backward(Workspace& workspace, Matrix<float> dx, std::span<float> dweight,
                       Matrix<const float> dout, Matrix<const float> x,
                       std::span<const float> weight, float eps, float offset = 0.0F);

/// LayerNorm (Ba et al. 2016): out[m, :] = (x[m, :] - mean) / sqrt(variance + eps) * (offset +
/// weight) + bias. out may be x; an empty bias adds nothing. A weight longer than a row holds
/// several rows' weights, one after another (heads with their own weights): row m uses part
/// m mod (weight.size() / N).
void layer_norm(Matrix<float> out, Matrix<const float> x, std::span<const float> weight,
                std::span<const float> bias, float eps, float offset = 0.0F);

/// The gradients that layer_norm_backward() adds to; empty: not computed.
struct LayerNormGradients {
  Matrix<float> x;  // [M, N]
  std::span<float> weight;
  std::span<float> bias;
};

/// Backward of layer_norm, given the gradient of its result.
void layer_norm_backward(Workspace& workspace, const LayerNormGradients& gradients,
                         Matrix<const float> dout, Matrix<const float> x,
                         std::span<const float> weight, float eps, float offset = 0.0F);

}  // namespace winnow::ops
