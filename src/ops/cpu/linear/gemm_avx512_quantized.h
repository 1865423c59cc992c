// Linear layers of quantised weights where the CPU adds up products of pairs of bf16.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// As linear() in bf16 with weights of one quantised format, where has_bf16_dots(). Their
/// integers are exact as bf16, and scales multiply a group's sum in float: nothing is rounded but
/// inputs and sums. A row's result does not depend on the other rows.
void gemm_avx512_quantized(Workspace& workspace, std::span<const LinearTarget> targets,
                           Matrix<const float> x);

}  // namespace winnow::ops::cpu
