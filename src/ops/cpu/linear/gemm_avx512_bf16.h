// Linear layers where the CPU adds up products of pairs of bf16.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// As linear() in bf16, where has_bf16_dots(). Each sum is the dot product of a weight row and an
/// input row, so nothing is reordered and no padding row is computed. A row's result does not
/// depend on the other rows.
void gemm_avx512_bf16(Workspace& workspace, std::span<const LinearTarget> targets,
                      Matrix<const float> x);

}  // namespace winnow::ops::cpu
