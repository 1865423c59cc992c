// Linear layers where the CPU multiplies tiles of bf16.
#pragma once

#include <cstddef>
#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Whether this CPU multiplies tiles of 16 rows of bf16 (AMX), and this program may use them.
bool has_bf16_tiles();

/// Whether columns come in whole tiles, and inputs stay in the second-level cache while the weights
/// pass by.
bool fits_tiles(std::size_t rows, std::size_t cols);

/// As linear() in bf16, where has_bf16_tiles() and fits_tiles() x. The first operand of a tile
/// product is row-major, the second is pairs of columns. Weights are therefore the first operand
/// (out^T = weight x^T), and only the inputs are reordered. A row's result does not depend on the
/// other rows.
void gemm_amx(Workspace& workspace, std::span<const LinearTarget> targets, Matrix<const float> x);

}  // namespace winnow::ops::cpu
