// Activations of every kind on the device, gated and plain, forward and backward.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/activation.h"

namespace winnow::ops::cuda {

/// out [rows, cols] = act(gate) * up, from gate_up [rows, 2 * cols], gates first
/// (GatedActivation); `bias` [2 * cols], if there is one, is added before. cols is a multiple
/// of 8.
void activate_multiply(const GatedActivation& activation, bf16* out, const bf16* gate_up, int rows,
                       int cols, const float* bias, cudaStream_t stream);
void activate_multiply(const GatedActivation& activation, float* out, const float* gate_up,
                       int rows, int cols, const float* bias, cudaStream_t stream);

/// Backward of activate_multiply, in place: gate_up becomes its gradient. `product` holds the
/// result's gradient [rows, cols] and becomes the result, which the next layer's backward needs.
/// Clamped values have no gradient.
void activate_multiply_backward(const GatedActivation& activation, bf16* gate_up, bf16* product,
                                int rows, int cols, const float* bias, cudaStream_t stream);
void activate_multiply_backward(const GatedActivation& activation, float* gate_up, float* product,
                                int rows, int cols, const float* bias, cudaStream_t stream);

/// x [rows, cols] = act(x + bias), in place; `bias` [cols] or null. cols is a multiple of 8.
void activate(Activation activation, bf16* x, int rows, int cols, const float* bias,
              cudaStream_t stream);
void activate(Activation activation, float* x, int rows, int cols, const float* bias,
              cudaStream_t stream);

/// Rows of floats, `stride` apart: row i is row indices[i] of them or, without indices (null), row
/// i.
struct FactorRows {
  const bf16* first = nullptr;
  std::size_t stride = 0;
  const std::int32_t* indices = nullptr;
};

/// x [rows, cols] = act(x) * factors, in place; cols and stride are multiples of 8.
void activate_multiply_rows(Activation activation, bf16* x, const FactorRows& factors, int rows,
                            int cols, cudaStream_t stream);

/// Rows of such factors, and of their gradients, with the same stride.
struct FactorGradients {
  const bf16* factors = nullptr;
  float* gradients = nullptr;  // written
  std::size_t stride = 0;
};

/// Backward of activate_multiply_rows: `gates` [rows, cols] become their gradient;
/// `product` holds the result's gradient, and becomes the result itself.
void activate_multiply_rows_backward(Activation activation, bf16* gates, bf16* product,
                                     const FactorGradients& factors, int rows, int cols,
                                     cudaStream_t stream);

/// Backward of activate, in place: x, the input of the activation, becomes its gradient. `result`
/// holds the result's gradient and becomes the result itself.
void activate_backward(Activation activation, bf16* x, bf16* result, int rows, int cols,
                       const float* bias, cudaStream_t stream);
void activate_backward(Activation activation, float* x, float* result, int rows, int cols,
                       const float* bias, cudaStream_t stream);

}  // namespace winnow::ops::cuda
