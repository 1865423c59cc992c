// Rows of a matrix on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace winnow::ops::cuda {

/// Row i of `out` = row indices[i] of `from`, i < rows. Rows have `row_bytes` bytes, a multiple
/// of 16. indices are in device memory; `out` and `from` do not overlap.
void gather_rows(void* out, const void* from, const std::int32_t* indices, int rows,
                 std::size_t row_bytes, cudaStream_t stream);

/// Column places[i] of `out` [rows, width] = column i of `from` [rows, cols]; -infinity elsewhere.
/// places [cols] are in device memory.
void spread_columns(float* out, int width, const float* from, int cols, const std::int32_t* places,
                    int rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
