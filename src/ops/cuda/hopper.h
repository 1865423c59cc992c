// The host's side of Hopper-specific instructions.
#pragma once

#include <cuda.h>

#include "base/dtype.h"
#include "ops/matrix.h"

namespace winnow::ops::cuda {

/// Whether the current device has them (wgmma; no later device does).
bool has_wgmma();

/// Describes [rows, 64] boxes of a matrix in device memory to the copy engine, which stores them
/// as slabs (kSlabBytes, swizzled) and fills what is outside the matrix with zeros. Rows begin at
/// multiples of 16 bytes. Pass it to kernels by value, as __grid_constant__.
CUtensorMap slab_map(const Matrix<const bf16>& matrix, int box_rows);

}  // namespace winnow::ops::cuda
