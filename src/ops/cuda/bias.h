// Biases of linear layers, backward.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace winnow::ops::cuda {

/// sums [cols] += the sum of the rows of x [rows, cols], which are `stride` elements apart, in
/// any order.
void add_column_sums(float* sums, const bf16* x, int rows, int cols, int stride,
                     cudaStream_t stream);

}  // namespace winnow::ops::cuda
