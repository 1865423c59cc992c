// RMSNorm of many rows on the device.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "ops/cuda/linear/fp8_rows.h"

namespace winnow::ops::cuda {

/// out = x / sqrt(mean(x^2) + eps) * weight for each row of x [rows, cols]. cols is a multiple of
/// 4.
void rms_norm(bf16* out, const float* x, int rows, int cols, const float* weight, float eps,
              cudaStream_t stream);

/// The same, rounded to bf16 and then encoded as e4m3 codes; cols is a multiple of 8.
void rms_norm(const Fp8RowsTo& out, const float* x, int rows, int cols, const float* weight,
              float eps, cudaStream_t stream);

/// x += bias for each row of x [rows, cols].
void add_bias(float* x, int rows, int cols, const float* bias, cudaStream_t stream);

}  // namespace winnow::ops::cuda
