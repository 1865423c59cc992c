// Columns of a matrix as e4m3 codes, for products in fp8 that sum over its rows.
#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "ops/cuda/linear/fp8_rows.h"

namespace winnow::ops::cuda {

/// Writes the transpose of x [rows, cols] as codes [cols, rows] with a scale for each column of x,
/// as Fp8RowsTo describes rows. rows and cols are multiples of 16. `largest` [cols]: scratch
/// memory.
void quantize_columns(const Fp8RowsTo& out, const bf16* x, int rows, int cols, float* largest,
                      cudaStream_t stream);

}  // namespace winnow::ops::cuda
