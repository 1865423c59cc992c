// Linear layers where the CPU adds up products of pairs of bf16.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Whether this CPU has what our kernels of bf16 are made of: of x86, dot products (AVX512_BF16)
/// and bytes looked up in tables (AVX512_VBMI); of aarch64, BF16.
bool has_bf16_dots();

/// As linear() in bf16, where has_bf16_dots(). A row's result does not depend on the other rows.
void gemm_bf16_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                    Matrix<const float> x);

}  // namespace winnow::ops::cpu
