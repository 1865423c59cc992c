// Our own product of activations with weights, for few rows or reproducible results.
#pragma once

#include <cstddef>
#include <span>

#include "ops/linear.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// Floats of scratch one thread needs for weights of `cols` columns.
std::size_t gemv_scratch(std::size_t cols);

/// target.out[m, n] = x[m] . weight[n] + bias[n] for every m and for n in [begin, end); begin is a
/// multiple of kRowBlock. Each weight is read only once for any number of rows of x up to a few
/// hundred. The order of every sum depends only on K, so a row's result does not depend on the
/// other rows, nor on how the weight rows are split.
void gemv_rows(const LinearTarget& target, Matrix<const float> x, std::size_t begin,
               std::size_t end, std::span<float> scratch);

/// out[i] = the float values of weight row begin + i, for every row of `out`.
void dequantize_rows(const Weight& weight, std::size_t begin, Matrix<float> out);

}  // namespace winnow::ops::cpu
