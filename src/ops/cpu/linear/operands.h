// Operands of products in the type that oneDNN multiplies: float, or bf16.
#pragma once

#include <span>

#include "ops/context.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// x as T: itself, or a rounded copy in the workspace.
template <class T>
Matrix<const T> as_operand(Workspace& workspace, Matrix<const float> x);
template <>
Matrix<const float> as_operand(Workspace& workspace, Matrix<const float> x);
template <>
Matrix<const bf16> as_operand(Workspace& workspace, Matrix<const float> x);

/// Rows [begin, end) of a weight as T: in place, or dequantised into `memory`, which must have room
/// for them.
template <class T>
Matrix<const T> weight_rows(const Weight& weight, std::size_t begin, std::size_t end,
                            std::span<T> memory);

}  // namespace winnow::ops::cpu
