// Linear layers that multiply quantised weights with inputs of 8 bits.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/linear.h"
#include "ops/matrix.h"

namespace winnow::ops::cpu {

/// Whether this CPU adds up products of bytes (AVX-512 VNNI or AVX-VNNI). Always false on aarch64,
/// where gemm_quantized_dots() uses such instructions.
bool has_byte_dots();

/// Like linear() with weights of one quantised format; requires has_byte_dots(). Inputs become
/// 8-bit integers with a scale per group of columns, as in llama.cpp's Q8_0; sums of a group are
/// exact. For many rows: it reorders the weights first. A row's result does not depend on the other
/// rows.
void gemm_byte_dots(Workspace& workspace, std::span<const LinearTarget> targets,
                    Matrix<const float> x);

}  // namespace winnow::ops::cpu
