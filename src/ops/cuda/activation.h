// Elementwise parts of a layer on the device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace winnow::ops::cuda {

/// SwiGLU: out [rows, cols] = silu(gate) * up of gate_up [rows, 2 * cols], the gates first; `bias`
/// [2 * cols] is added before, when there is one. cols is a multiple of 8.
void silu_multiply(__nv_bfloat16* out, const __nv_bfloat16* gate_up, int rows, int cols,
                   const float* bias, cudaStream_t stream);

}  // namespace winnow::ops::cuda
