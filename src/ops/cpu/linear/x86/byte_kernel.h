// The operands of products of quantised weights and 8-bit inputs, and the kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/matrix.h"
#include "ops/weight.h"

namespace winnow::ops::cpu {

/// The instructions multiply unsigned with signed bytes. So weights get an offset, and inputs are
/// the signed operand: sum(w x) = sum((w + offset) x) + correction, correction = -offset sum(x).
constexpr int weight_offset(WeightFormat format) {
  return format == WeightFormat::int4 ? 8 : 128;
}

/// Inputs as 8-bit integers with a scale per group of columns.
struct ByteInputs {
  const std::int8_t* codes;         // [rows, groups, QuantizedWeight::kGroup]
  const float* scales;              // [rows, groups]
  const std::int32_t* corrections;  // [rows, groups]
  std::size_t rows;
  std::size_t groups;

  [[nodiscard]] ByteInputs slice(std::size_t begin, std::size_t end) const {
    return {codes + begin * groups * QuantizedWeight::kGroup, scales + begin * groups,
            corrections + begin * groups, end - begin, groups};
  }
};

inline constexpr std::size_t kMostByteLanes = 16;

/// A block of a kernel's number of weight rows, reordered: for each group and four columns of it,
/// the four bytes of every row, with the offset; and for each group the scale of every row.
struct ByteWeights {
  std::uint8_t* codes;  // [groups, kGroup / 4, lanes, 4], aligned to 64 bytes
  float* scales;        // [groups, lanes], aligned to 64 bytes
};

struct ByteKernel {
  std::size_t lanes;   // weight rows of a block
  std::size_t inputs;  // the most inputs of a tile
  /// Reorders rows [begin, begin + lanes) of a weight, the last row in place of missing ones.
  void (*pack)(const Weight& weight, std::size_t begin, const ByteWeights& to);
  /// out[m, n] = x[m] . row n + bias[n] for the first out.cols rows of the block; bias [lanes].
  void (*tile)(const ByteWeights& weights, const ByteInputs& x, const float* bias,
               Matrix<float> out);
};

bool has_avx512_vnni();
bool has_avx_vnni();

/// Kernels for AVX-512 VNNI, and for AVX-VNNI. Both add in the same order: they give the same bits.
extern const ByteKernel kAvx512ByteKernel;
extern const ByteKernel kAvxByteKernel;

}  // namespace winnow::ops::cpu
