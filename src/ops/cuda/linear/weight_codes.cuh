// Codes of each weight format as bf16 operands of the matrix instructions.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "ops/cuda/linear/device_weight.h"
#include "ops/cuda/pages/kv_codes.cuh"

namespace winnow::ops::cuda {

/// Columns that share a scale (int8, int4) and that two matrix instructions process: a block. Lane
/// c of four has columns 8 c to 8 c + 7 of it.
inline constexpr int kBlockColumns = 32;

/// (x & mask) | bits in one instruction, which takes one immediate at most.
inline __device__ std::uint32_t select_bits(std::uint32_t x, std::uint32_t mask,
                                            std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
  return result;
}

inline __device__ __nv_bfloat162 pair_of(std::uint32_t bits) {
  __nv_bfloat162 pair;
  memcpy(&pair, &bits, sizeof(pair));
  return pair;
}

/// Each format defines: kCodes, the columns of a 32-bit word; kBlocks, the blocks of a step;
/// kGroupScales, whether blocks have their own scales; pairs(words, j, out), which converts the 16
/// bytes that a lane holds of a step to the 8 columns of block j as pairs of bf16, in order;
/// lowered(i), which must be added to pair i, 0 for nothing; activation_unit(i), the factor for the
/// activations of pair i; and kUnit, the factor for sums.
struct Bf16Weight {
  static constexpr int kCodes = 2;
  static constexpr DeviceWeightFormat kFormat = DeviceWeightFormat::bf16;
  static constexpr int kBlocks = 1;
  static constexpr bool kGroupScales = false;
  static constexpr std::uint32_t lowered(int) { return 0; }
  static constexpr float activation_unit(int) { return 1.0F; }
  static constexpr float kUnit = 1.0F;
  static __device__ void pairs(const std::uint32_t (&words)[4], int, std::uint32_t (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[i] = words[i];
    }
  }
};

/// e4m3 moved to bf16's exponent and mantissa bits is the value times 2^-120, subnormals too.
/// Half of that is compensated in the activations, so that no product leaves the range of float.
/// In each half of a word, the second column of two (2 or 3) is in bf16's position; in the first
/// one (0 or 1) the sign is bit 11, the upper three bits begin at bit 12, the lower four at 0.
struct Fp8Weight {
  static constexpr int kCodes = 4;
  static constexpr DeviceWeightFormat kFormat = DeviceWeightFormat::fp8;
  static constexpr int kBlocks = 2;
  static constexpr bool kGroupScales = false;
  static constexpr std::uint32_t lowered(int) { return 0; }
  static constexpr float activation_unit(int) { return 0x1p60F; }
  static constexpr float kUnit = 0x1p60F;
  static __device__ void pairs(const std::uint32_t (&words)[4], int j, std::uint32_t (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t word = words[2 * j + i];
      out[2 * i] = select_bits(word << 4, 0x80F080F0U, (word >> 4) & 0x07000700U);
      out[2 * i + 1] = word & 0x87F087F0U;
    }
  }
  /// Arranges the bits of columns 0, 2, 1, 3, from the first byte on, as described above.
  static __device__ std::uint32_t arranged(std::uint32_t bytes) {
    const std::uint32_t first = bytes & 0x00FF00FFU;
    const std::uint32_t second = bytes >> 8 & 0x00FF00FFU;
    return (first & 0x00800080U) << 4 | (first & 0x00700070U) << 8 | (first & 0x000F000FU) |
           (second & 0x00800080U) << 8 | (second & 0x007F007FU) << 4;
  }
  /// The inverse: the codes of an arranged word's columns 0, 1, 2, 3, from the first byte on.
  static __device__ std::uint32_t codes(std::uint32_t word) {
    const std::uint32_t first =
        (word >> 4 & 0x00800080U) | (word >> 8 & 0x00700070U) | (word & 0x000F000FU);
    const std::uint32_t second = (word >> 8 & 0x00800080U) | (word >> 4 & 0x007F007FU);
    return __byte_perm(first, second, 0x6420U);
  }
};

/// Stored + 128: the lower 7 bits after bf16's 128, minus 128 or 256 as the upper bit says. Bytes
/// of a word: columns 0, 2, 1, 3.
struct Int8Weight {
  static constexpr int kCodes = 4;
  static constexpr DeviceWeightFormat kFormat = DeviceWeightFormat::int8;
  static constexpr int kBlocks = 2;
  static constexpr bool kGroupScales = true;
  static constexpr std::uint32_t lowered(int) { return 0; }
  static constexpr float activation_unit(int) { return 1.0F; }
  static constexpr float kUnit = 1.0F;
  static __device__ void pairs(const std::uint32_t (&words)[4], int j, std::uint32_t (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      out[2 * i] = pair(words[2 * j + i]);
      out[2 * i + 1] = pair(words[2 * j + i] >> 8);
    }
  }

 private:
  static __device__ std::uint32_t pair(std::uint32_t word) {
    const std::uint32_t raised = select_bits(word, 0x007F007FU, 0x43004300U);
    const std::uint32_t offset = select_bits(~word, 0x00800080U, 0xC300C300U);
    return bits_of(__hadd2(pair_of(raised), pair_of(offset)));
  }
};

/// Stored + 8. As the lower bits of a bf16, a code is its number times 2^-133, or 16 times
/// as much: each is an operand if the others are masked out. Nibbles of a word: columns 0, 2, 4,
/// 6, 1, 3, 5, 7.
/// One row is multiplied differently: skinny_gemm_integer.cuh.
struct Int4Weight {
  static constexpr int kCodes = 8;
  static constexpr DeviceWeightFormat kFormat = DeviceWeightFormat::int4;
  static constexpr int kBlocks = 4;
  static constexpr bool kGroupScales = true;
  static constexpr std::uint32_t lowered(int i) { return i % 2 == 0 ? 0x80088008U : 0x80808080U; }
  static constexpr float activation_unit(int i) { return i % 2 == 0 ? 0x1p60F : 0x1p56F; }
  static constexpr float kUnit = 0x1p73F;
  static __device__ void pairs(const std::uint32_t (&words)[4], int j, std::uint32_t (&out)[4]) {
    const std::uint32_t upper = words[j] >> 8;
    out[0] = words[j] & 0x000F000FU;
    out[1] = words[j] & 0x00F000F0U;
    out[2] = upper & 0x000F000FU;
    out[3] = upper & 0x00F000F0U;
  }
};

/// The activations of pair i in the unit that a format's products need.
template <class Format>
__device__ std::uint32_t in_unit(std::uint32_t pair, int i) {
  if constexpr (Format::activation_unit(0) == 1.0F) {
    return pair;
  } else {
    return bits_of(__hmul2(pair_of(pair), __float2bfloat162_rn(Format::activation_unit(i))));
  }
}

/// Bytes of a tile's step: codes, then scales.
template <class Format>
inline constexpr int kTileStepBytes = kTileRows*(kStepBytes +
                                                 (Format::kGroupScales ? 2 * Format::kBlocks : 0));

/// Positions within a weight.
template <class Format>
struct WeightPlace {
  std::size_t piece;  // the 16 bytes that contain columns [column, column + 8)
  int block;          // the block of those 16 bytes
  std::size_t scale;  // the bf16 of these columns

  /// column: a multiple of 8.
  __device__ WeightPlace(const DeviceWeightView& weight, int row, int column) {
    constexpr int kColumns = Format::kBlocks * kBlockColumns;
    const int half = weight.rows / 2;
    const int upper = row < half ? row : row - half;
    const int tile = weight.paired ? upper / 8 : row / kTileRows;
    const int r = weight.paired ? upper % 8 + (row < half ? 0 : 8) : row % kTileRows;
    const std::size_t step = (static_cast<std::size_t>(tile) * weight.steps + column / kColumns) *
                             kTileStepBytes<Format>;
    block = column % kColumns / kBlockColumns;
    piece = step + r * kStepBytes + column % kBlockColumns / 8 * 16;
    scale = step + kTileRows * kStepBytes + (r * Format::kBlocks + block) * 2;
  }
};

/// The values of columns [column, column + 8) of a row; column a multiple of 8.
template <class Format>
__device__ void load_columns(const DeviceWeightView& weight, int row, int column,
                             float (&values)[8]) {
  const WeightPlace<Format> place(weight, row, column);
  std::uint32_t words[4];
  memcpy(words, __builtin_assume_aligned(weight.memory + place.piece, 16), sizeof(words));
  std::uint32_t pairs[4];
  Format::pairs(words, place.block, pairs);
  float scale = 1.0F;
  if constexpr (Format::kFormat == DeviceWeightFormat::fp8) {
    scale = weight.row_scales[row];
  } else if constexpr (Format::kGroupScales) {
    scale = __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(weight.memory + place.scale));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(pair_of(pairs[i]));
    const float2 off = __bfloat1622float2(pair_of(Format::lowered(i)));
    // Multiplying both units first would overflow.
    values[2 * i] = (x.x + off.x) * Format::activation_unit(i) * Format::kUnit * scale;
    values[2 * i + 1] = (x.y + off.y) * Format::activation_unit(i) * Format::kUnit * scale;
  }
}

/// f(Format{}) for the format at run time.
template <class F>
auto with_format(DeviceWeightFormat format, F&& f) {
  switch (format) {
    case DeviceWeightFormat::fp8:
      return f(Fp8Weight{});
    case DeviceWeightFormat::int8:
      return f(Int8Weight{});
    case DeviceWeightFormat::int4:
      return f(Int4Weight{});
    default:
      return f(Bf16Weight{});
  }
}

}  // namespace winnow::ops::cuda
