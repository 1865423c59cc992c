// Elementwise parts of a layer on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/cuda/linear/fp8_rows.h"

namespace winnow::ops::cuda {

/// SwiGLU: out [rows, cols] = silu(gate) * up, from gate_up [rows, 2 * cols], gates first; `bias`
/// [2 * cols], if there is one, is added before. cols is a multiple of 8.
void silu_multiply(bf16* out, const bf16* gate_up, int rows, int cols, const float* bias,
                   cudaStream_t stream);
/// The same, rounded to bf16 and then encoded as e4m3 codes.
void silu_multiply(const Fp8RowsTo& out, const bf16* gate_up, int rows, int cols, const float* bias,
                   cudaStream_t stream);

/// Backward of silu_multiply, in place: gate_up becomes its gradient. `product` holds the gradient
/// of the result [rows, cols] and becomes the result itself, which the next layer's backward needs.
void silu_multiply_backward(bf16* gate_up, bf16* product, int rows, int cols, const float* bias,
                            cudaStream_t stream);

}  // namespace winnow::ops::cuda
