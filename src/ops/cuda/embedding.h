// Rows of the embedding for training on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// out [rows, cols] = row tokens[i] of table [vocab, cols], in device memory; cols a multiple of 8.
void embed(float* out, const bf16* table, const std::int32_t* tokens, int rows, int cols,
           cudaStream_t stream);

/// Row tokens[i] of dtable += row i of dout [rows, cols]; rows of one token are added in any order.
void embed_backward(float* dtable, const float* dout, const std::int32_t* tokens, int rows,
                    int cols, cudaStream_t stream);

}  // namespace winnow::ops::cuda
