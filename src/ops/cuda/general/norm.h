// RMSNorm of every kind on the device; backward is training/training_norm.h's.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// What a normalised row is multiplied by: offset + weight [cols]. The offset is 1 where weights
/// are kept as what differs from 1 (Gemma).
struct NormWeight {
  const float* weight = nullptr;
  float offset = 0.0F;
};

/// out = x / sqrt(mean(x^2) + eps) * (offset + weight) for each row of x [rows, cols]; cols is a
/// multiple of 8. out may be x.
void rms_norm(bf16* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream);
void rms_norm(float* out, const float* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream);
void rms_norm(bf16* out, const bf16* x, int rows, int cols, const NormWeight& weight, float eps,
              cudaStream_t stream);

/// residual += factor * that, in float: norms behind a layer's product.
void add_rms_norm(float* residual, const bf16* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream);
void add_rms_norm(float* residual, const float* x, int rows, int cols, const NormWeight& weight,
                  float eps, float factor, cudaStream_t stream);

}  // namespace winnow::ops::cuda
