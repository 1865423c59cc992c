// The kernel of quantised weights, for the instructions of the including file. Its class `Products`
// holds a group of kRowBlock weight rows and multiplies it with inputs.
#include <arm_neon.h>

#include <array>

#include "ops/cpu/linear/aarch64/quantized_tile.h"

namespace winnow::ops::cpu {
namespace {

constexpr std::size_t kGroup = QuantizedWeight::kGroup;

/// The integers of one group of columns.
using Codes = std::array<int8x16_t, 2>;

struct Int8Codes {
  static constexpr std::size_t kBits = 8;
  static Codes group(const std::uint8_t* from) {
    return {vreinterpretq_s8_u8(vld1q_u8(from)), vreinterpretq_s8_u8(vld1q_u8(from + 16))};
  }
};

/// The even columns, then the odd ones.
struct Int4Codes {
  static constexpr std::size_t kBits = 4;
  static Codes group(const std::uint8_t* from) {
    const uint8x16_t pairs = vld1q_u8(from);
    const int8x16_t eight = vdupq_n_s8(8);
    return {vsubq_s8(vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(15))), eight),
            vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4)), eight)};
  }
};

struct Mxfp4Codes {
  static constexpr std::size_t kBits = 4;
  static Codes group(const std::uint8_t* from) {
    const uint8x16_t pairs = vld1q_u8(from);
    const int8x16_t table = vld1q_s8(kTwiceE2m1.data());
    return {vqtbl1q_s8(table, vandq_u8(pairs, vdupq_n_u8(15))),
            vqtbl1q_s8(table, vshrq_n_u8(pairs, 4))};
  }
};

/// The scales of group g of the block's rows.
float32x4_t scales_of(const QuantizedRows& rows, std::size_t g) {
  static_assert(kRowBlock == 4);
  const std::uint16_t bits[kRowBlock] = {rows.scales[0][g].bits, rows.scales[1][g].bits,
                                         rows.scales[2][g].bits, rows.scales[3][g].bits};
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(bits), 16));
}

template <class Format, std::size_t M>
void tile_of(const QuantizedRows& rows, const ByteInputs& x, const float* bias, Matrix<float> out) {
  constexpr std::size_t kBytes = kGroup * Format::kBits / 8;
  float32x4_t sums[M] = {};
  for (std::size_t g = 0; g < x.groups; ++g) {
    const Products weights(
        Format::group(rows.codes[0] + g * kBytes), Format::group(rows.codes[1] + g * kBytes),
        Format::group(rows.codes[2] + g * kBytes), Format::group(rows.codes[3] + g * kBytes));
    const float32x4_t scales = scales_of(rows, g);
#pragma GCC unroll 8
    for (std::size_t m = 0; m < M; ++m) {
      const std::size_t at = m * x.groups + g;
      const int32x4_t products = weights.with(x.codes + at * ByteInputs::kGroupBytes);
      sums[m] = vfmaq_f32(sums[m], vcvtq_f32_s32(products), vmulq_n_f32(scales, x.scales[at]));
    }
  }
  for (std::size_t m = 0; m < M; ++m) {
    for (std::size_t r = 0; r < rows.count; ++r) {
      out.row(m)[r] = sums[m][r] + (bias == nullptr ? 0.0F : bias[r]);
    }
  }
}

template <class Format>
void tile_in(const QuantizedRows& rows, const ByteInputs& x, const float* bias, Matrix<float> out) {
  constexpr std::array<decltype(&tile_of<Format, 1>), kByteTile> kTiles{
      tile_of<Format, 1>, tile_of<Format, 2>, tile_of<Format, 3>, tile_of<Format, 4>,
      tile_of<Format, 5>, tile_of<Format, 6>, tile_of<Format, 7>, tile_of<Format, 8>};
  kTiles[x.rows - 1](rows, x, bias, out);
}

void tile(WeightFormat format, const QuantizedRows& rows, const ByteInputs& x, const float* bias,
          Matrix<float> out) {
  format == WeightFormat::int8   ? tile_in<Int8Codes>(rows, x, bias, out)
  : format == WeightFormat::int4 ? tile_in<Int4Codes>(rows, x, bias, out)
                                 : tile_in<Mxfp4Codes>(rows, x, bias, out);
}

}  // namespace
}  // namespace winnow::ops::cpu
