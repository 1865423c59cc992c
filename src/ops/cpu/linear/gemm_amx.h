// Linear layers on CPUs that multiply tiles of bf16.
#pragma once

#include <cstddef>
#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Whether this CPU multiplies tiles of 16 rows of bf16 (AMX), and this program may use them.
bool has_bf16_tiles();

/// Whether the columns are a multiple of a tile's, and the inputs stay in the second-level cache
/// while the weights are streamed.
bool fits_tiles(std::size_t rows, std::size_t cols);

/// Like linear() in bf16; requires has_bf16_tiles(), and fits_tiles() of x. The first operand of a
/// tile product is row-major, the second consists of pairs of columns. Weights are the first
/// operand (out^T = weight x^T), and only the inputs are reordered. A row's result does not depend
/// on the other rows.
void gemm_amx(Workspace& workspace, std::span<const LinearTarget> targets, Matrix<const float> x);

}  // namespace winnow::ops::cpu
