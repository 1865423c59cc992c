// Linear layers on CPUs with bf16 dot product instructions.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Whether this CPU has the instructions that our bf16 kernels use. x86: dot products (AVX512_BF16)
/// and byte table lookups (AVX512_VBMI); aarch64: BF16.
bool has_bf16_dots();

/// Like linear() in bf16; requires has_bf16_dots(). A row's result does not depend on other rows.
void gemm_bf16_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                    Matrix<const float> x);

}  // namespace winnow::ops::cpu
