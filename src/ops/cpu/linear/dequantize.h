// Quantised weights to bf16.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// Rows from `begin` on of an int8, int4 or mxfp4 weight, rounded to bf16, as many as out has.
/// Requires has_bf16_dots().
void dequantize(const Weight& weight, std::size_t begin, Matrix<bf16> out);

}  // namespace winnow::ops::cpu
