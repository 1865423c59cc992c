// RMSNorm and LayerNorm for training on the device: forward, which also checks for values that are
// not finite, and backward.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// A norm of rows of x [rows, cols], cols a multiple of 8: x / sqrt(mean(x^2) + eps) * (offset +
/// weight), or, if it `centers`, the same of x - mean(x); and the bias.
struct TrainingNorm {
  const float* weight = nullptr;  // [cols]
  float eps = 0.0F;
  float offset = 0.0F;
  bool centers = false;
  const float* bias = nullptr;  // [cols] or null
};

/// out = the norm of each row. *first_bad becomes at most `place` if a row of x is not finite;
/// null: not needed.
void norm_rows(bf16* out, const float* x, int rows, int cols, const TrainingNorm& norm, int place,
               int* first_bad, cudaStream_t stream);

/// The results of norm_rows_backward(). The gradient of a bias is the sum of the rows of `dout`
/// (add_column_sums).
struct NormGradients {
  float* x = nullptr;       // [rows, cols]; null: only `rounded` is needed
  bool add = true;          // to the contents of x, if present; else they are replaced
  bf16* rounded = nullptr;  // [rows, cols]: x's new contents, for products; null: not needed
  float* weight = nullptr;  // [cols], added to; null: not computed
  float multiplier = 1.0F;  // the gradient of the norm's result is this times `dout`
};

/// Backward of norm_rows, given the gradient of its result. Sums over rows have any order.
void norm_rows_backward(const NormGradients& gradients, const bf16* dout, const float* x, int rows,
                        int cols, const TrainingNorm& norm, cudaStream_t stream);
/// The same for a norm after a layer's product: x in bf16, and the result's gradient is that of the
/// residual stream that it was added to.
void norm_rows_backward(const NormGradients& gradients, const float* dout, const bf16* x, int rows,
                        int cols, const TrainingNorm& norm, cudaStream_t stream);

}  // namespace winnow::ops::cuda
