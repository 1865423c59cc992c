// Linear layers that multiply quantised weights as integers, without dequantising them first.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// On x86 has_bf16_dots(), on aarch64 dot products of bytes (DotProd or I8MM).
bool has_quantized_dots();

/// Whether they are fastest for many rows, too; otherwise weights are dequantised for many rows.
bool quantized_dots_take_many_rows();

/// Like linear() in bf16 with weights of one quantised format; requires has_quantized_dots(). The
/// integers of a group are multiplied with inputs in bf16 (x86), or with 16-bit inputs that share a
/// scale per group (aarch64). Scales multiply the sum in float: only inputs and sums are rounded. A
/// row's result does not depend on the other rows.
void gemm_quantized_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                         Matrix<const float> x);

}  // namespace winnow::ops::cpu
