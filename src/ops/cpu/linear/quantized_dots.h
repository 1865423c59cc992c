// Linear layers of quantised weights whose integers the CPU multiplies as they are.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Of x86 has_bf16_dots(), of aarch64 dot products of bytes (DotProd or I8MM).
bool has_quantized_dots();

/// Whether they are the best for many rows, too; otherwise weights are dequantised for these.
bool quantized_dots_take_many_rows();

/// As linear() in bf16 with weights of one quantised format, where has_quantized_dots(). The
/// integers of a group meet inputs of bf16 (x86), or of 16 bits that share a scale with their group
/// (aarch64), and scales multiply the sum in float: nothing is rounded but inputs and sums. A row's
/// result does not depend on the other rows.
void gemm_quantized_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                         Matrix<const float> x);

}  // namespace winnow::ops::cpu
