// What the host must know of Hopper's own instructions.
#pragma once

#include <cuda.h>

#include "base/dtype.h"
#include "ops/matrix.h"

namespace winnow::ops::cuda {

/// Whether the current device has them (wgmma; no later device does).
bool has_wgmma();

/// Describes [rows, 64] boxes of a matrix in device memory to the copy engine, which lays them out
/// as slabs (kSlabBytes, swizzled) and fills what is outside the matrix with zeros. Rows begin at
/// multiples of 16 bytes. To be passed to kernels by value, as __grid_constant__.
CUtensorMap slab_map(const Matrix<const bf16>& matrix, int box_rows);

}  // namespace winnow::ops::cuda
