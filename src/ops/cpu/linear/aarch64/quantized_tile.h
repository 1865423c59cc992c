// Products of quantised weights with inputs of two bytes, and what their kernels take.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/linear/row_blocks.h"
#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// Inputs as integers of 16 bits with a scale per group of columns, in two bytes: value =
/// scale (256 high + low). A group lies as the kernel wants it.
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

/// Some rows of a quantised weight, at most kRowBlock; there are kRowBlock to read.
struct QuantizedRows {
  QuantizedRows(const Weight& weight, std::size_t first);

  std::array<const std::uint8_t*, kRowBlock> codes;
  std::array<const bf16*, kRowBlock> scales;
  std::size_t count;
};

/// Inputs that a kernel multiplies together, at most.
inline constexpr std::size_t kByteTile = 8;

/// out[m, n] = x[m] . rows[n] (+ bias[n]) for some inputs and the rows of the block. Integers are
/// summed exactly, so both kernels give the same bits.
struct QuantizedKernel {
  void (*tile)(WeightFormat format, const QuantizedRows& rows, const ByteInputs& x,
               const float* bias, Matrix<float> out);
  std::size_t run;  // high bytes of inputs that lie side by side, followed by their low ones
};

/// Of dot products (DotProd), and of products of matrices (I8MM).
extern const QuantizedKernel kDotProdKernel;
extern const QuantizedKernel kI8mmKernel;

}  // namespace winnow::ops::cpu
