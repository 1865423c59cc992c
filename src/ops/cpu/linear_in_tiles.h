// Linear layers of a few dozen rows where the CPU multiplies tiles of bf16.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// As linear() in bf16, which has_fast_bf16() must allow. oneDNN brings the second operand of a
/// product into an order of its own each time; for a weight that takes about as long as a product
/// with few rows, so here the rows are the second operand: out^T = weight x^T. They are made up to
/// a whole number of tiles, whose edges take long, too.
void linear_in_tiles(Workspace& workspace, std::span<const LinearTarget> targets,
                     Matrix<const float> x);

}  // namespace winnow::ops::cpu
