// Inputs of layers from their own embeddings (model::LayerEmbeddings), for training on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// The operands of all layers' inputs.
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

}  // namespace winnow::ops::cuda
