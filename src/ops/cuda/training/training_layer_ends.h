// What some layers end with, for training on the device: embeddings of their own
// (model::LayerEmbeddings) and a factor.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "ops/activation.h"

namespace winnow::ops::cuda {

/// x [count] *= *factor, in device memory.
void scale_by(float* x, std::size_t count, const float* factor, cudaStream_t stream);

/// What the inputs of all layers are made of.
struct LayerInputRows {
  int rows = 0;
  int layers = 0;
  int width = 0;                         // of a layer
  const float* projected = nullptr;      // [rows, layers * width]
  const float* norm = nullptr;           // [width]
  float norm_offset = 0.0F;              // is added to the norm's weights
  float eps = 0.0F;                      // the norm's
  const bf16* table = nullptr;           // [vocab, layers * width]
  const std::int32_t* tokens = nullptr;  // [rows]
  float embedding_scale = 1.0F;          // of the table's rows
  float scale = 1.0F;                    // of the sum
};

/// out [rows, layers * width] = scale * (norm(projected) + embedding_scale * table[token]), normed
/// by layer.
void layer_inputs(const LayerInputRows& of, bf16* out, cudaStream_t stream);

/// Backward of activate_multiply_rows() (general/activation.h) of gates [rows, cols], which become
/// their gradient, and factors, `stride` apart, whose gradient is written with the same stride.
/// `product` holds the gradient of the result, and becomes the result itself.
struct FactorGradients {
  const bf16* factors = nullptr;
  float* gradients = nullptr;
  std::size_t stride = 0;
};
void activate_multiply_rows_backward(Activation activation, bf16* gates, bf16* product,
                                     const FactorGradients& factors, int rows, int cols,
                                     cudaStream_t stream);

}  // namespace winnow::ops::cuda
