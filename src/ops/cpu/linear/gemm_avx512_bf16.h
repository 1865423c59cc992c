// Linear layers where the CPU adds up products of pairs of bf16.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// As linear() in bf16, where has_bf16_dots(). Weights and rows stay as they lie: each sum is the
/// dot product of two of them, so nothing is brought into another order first, and no row is
/// computed that was not asked for. A row's result does not depend on the other rows.
void gemm_avx512_bf16(Workspace& workspace, std::span<const LinearTarget> targets,
                      Matrix<const float> x);

}  // namespace winnow::ops::cpu
