// RMSNorm for training on the device: forward with a look at what is not finite, and backward.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// out = x / sqrt(mean(x^2) + eps) * (offset + weight) for each row of x [rows, cols]; cols a
/// multiple of 8. *first_bad becomes at most `place` when a row of x is not finite; null: not
/// needed.
void rms_norm(bf16* out, const float* x, int rows, int cols, const float* weight, float eps,
              int place, int* first_bad, cudaStream_t stream, float offset = 0.0F);

/// What rms_norm_backward() writes.
struct NormGradients {
  float* x = nullptr;       // [rows, cols]
  bool add = true;          // to what x has; else it is replaced
  bf16* rounded = nullptr;  // [rows, cols]: what x has then, for products; null: not wanted
  float* weight = nullptr;  // [cols], added to; null: not computed
  float multiplier = 1.0F;  // the gradient of the norm's result is this times `dout`
};

/// Backward of rms_norm, of what is multiplied by offset + weight (general/norm.h), given the
/// gradient of its result. Sums over rows come in any order.
void rms_norm_backward(const NormGradients& gradients, const bf16* dout, const float* x, int rows,
                       int cols, const float* weight, float eps, cudaStream_t stream,
                       float offset = 0.0F);
/// The same behind a layer's product: x in bf16, and the gradient of its result that of the
/// residual stream that it was added to.
void rms_norm_backward(const NormGradients& gradients, const float* dout, const bf16* x, int rows,
                       int cols, const float* weight, float eps, cudaStream_t stream,
                       float offset = 0.0F);

}  // namespace winnow::ops::cuda
