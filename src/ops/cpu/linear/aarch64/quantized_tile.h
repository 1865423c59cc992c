// Products of quantised weights with inputs of two bytes, and the operands of their kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/linear/row_blocks.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// Inputs as 16-bit integers with a scale per group of columns, split into two bytes: value =
/// scale (256 high + low). The order of a group's bytes depends on the kernel.
struct ByteInputs {
  static constexpr std::size_t kGroupBytes = std::size_t{2} * QuantizedWeight::kGroup;

  const std::int8_t* codes;  // [rows, groups, kGroupBytes]
  const float* scales;       // [rows, groups]
  std::size_t rows;
  std::size_t groups;

  [[nodiscard]] ByteInputs slice(std::size_t begin, std::size_t end) const {
    return {codes + begin * groups * kGroupBytes, scales + begin * groups, end - begin, groups};
  }
};

/// Up to kRowBlock rows of a quantised weight; kRowBlock rows are readable in any case.
struct QuantizedRows {
  QuantizedRows(const Weight& weight, std::size_t first);

  std::array<const std::uint8_t*, kRowBlock> codes;
  std::array<const bf16*, kRowBlock> scales;
  std::size_t count;
};

/// The largest number of inputs that a kernel multiplies together.
inline constexpr std::size_t kByteTile = 8;

/// out[m, n] = x[m] . rows[n] (+ bias[n]) for some inputs and the rows of the block. Integers are
/// summed exactly, so both kernels give the same bits.
struct QuantizedKernel {
  void (*tile)(WeightFormat format, const QuantizedRows& rows, const ByteInputs& x,
               const float* bias, Matrix<float> out);
  std::size_t run;  // high bytes of inputs that are adjacent, followed by their low bytes
};

/// Kernels for dot products (DotProd), and for matrix products (I8MM).
extern const QuantizedKernel kDotProdKernel;
extern const QuantizedKernel kI8mmKernel;

}  // namespace winnow::ops::cpu
