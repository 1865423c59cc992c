#include "ops/cpu/linear/dequantize.h"

#include <cassert>
#include <cstdint>

#include "ops/cpu/linear/bf16_dots.h"
#include "ops/cpu/linear/x86/nibbles.h"

#include <hwy/base.h>
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace winnow::ops::cpu {
namespace {

constexpr std::size_t kGroup = QuantizedWeight::kGroup;

/// The integers of a group, each in a byte.
struct Int8 {
  static constexpr std::size_t kBits = 8;
  static __m256i group(const std::uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
};

struct Int4 {
  static constexpr std::size_t kBits = 4;
  static __m256i group(const std::uint8_t* from) {
    return _mm256_sub_epi8(nibbles(from), _mm256_set1_epi8(8));
  }
};

struct Mxfp4 {
  static constexpr std::size_t kBits = 4;
  static __m256i group(const std::uint8_t* from) {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kTwiceE2m1.data()));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(from));
  }
};

// With masks of all lanes, as GCC 12 warns about the unmasked conversions' undefined operand.
__m512 floats(__m128i integers) {
  constexpr __mmask16 kAll = 0xFFFF;
  return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, integers));
}

template <class Format>
void dequantize_as(const Weight& weight, std::size_t begin, Matrix<bf16> out) {
  constexpr std::size_t kGroupBytes = kGroup * Format::kBits / 8;
  const std::size_t groups = out.cols / kGroup;
  const auto* codes = static_cast<const std::uint8_t*>(weight.data) + begin * groups * kGroupBytes;
  const bf16* scales = weight.scales + begin * groups;
  for (std::size_t i = 0; i < out.rows; ++i) {
    bf16* row = out.row(i).data();
    for (std::size_t g = 0; g < groups; ++g, codes += kGroupBytes, ++scales, row += kGroup) {
      const __m256i integers = Format::group(codes);
      const __m512 scale = _mm512_set1_ps(to_float(*scales));
      const __m512 first = scale * floats(_mm256_castsi256_si128(integers));
      const __m512 last = scale * floats(_mm256_extracti128_si256(integers, 1));
      _mm512_storeu_si512(row, __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(last, first)));
    }
  }
}

}  // namespace
}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

void dequantize(const Weight& weight, std::size_t begin, Matrix<bf16> out) {
  assert(has_bf16_dots() && is_quantized(weight.format) && weight.group == QuantizedWeight::kGroup);
  weight.format == WeightFormat::int8   ? dequantize_as<Int8>(weight, begin, out)
  : weight.format == WeightFormat::int4 ? dequantize_as<Int4>(weight, begin, out)
                                        : dequantize_as<Mxfp4>(weight, begin, out);
}

}  // namespace winnow::ops::cpu
