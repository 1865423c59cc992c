#include <hwy/base.h>
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/cpu/linear/x86/byte_kernel.h"
#include "ops/cpu/linear/x86/nibbles.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avxvnni")
namespace winnow::ops::cpu {
namespace {

struct Lanes {
  static constexpr std::size_t kCount = 8;
  static constexpr std::size_t kInputs = 4;  // sums and products of each in 16 registers
  using Integers = __m256i;
  using Floats = __m256;

  static Integers repeat(std::int32_t value) { return _mm256_set1_epi32(value); }
  static Integers load(const std::uint8_t* from) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Floats load(const float* from) { return _mm256_load_ps(from); }
  static void store(float* to, Floats values) { _mm256_store_ps(to, values); }

  /// sums + the products of each lane's four bytes with four columns of an input.
  static Integers add_dots(Integers sums, Integers rows, std::int32_t columns) {
    return _mm256_dpbusd_avx_epi32(sums, rows, _mm256_set1_epi32(columns));
  }

  static Floats add_scaled(Floats sums, Integers products, Floats scales, float scale) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), scales * _mm256_set1_ps(scale), sums);
  }

  /// Writes the columns of the rows, four at a time.
  static void transpose(const __m256i (&rows)[kCount], std::uint8_t* to) {
    constexpr std::size_t kQuad = 4;  // rows of a quad
    __m256i quads[2][kQuad];          // [quad of rows][columns modulo 4]
    for (std::size_t q = 0; q < 2; ++q) {
      const __m256i* quad = rows + kQuad * q;
      const __m256i ab_low = _mm256_unpacklo_epi32(quad[0], quad[1]);
      const __m256i ab_high = _mm256_unpackhi_epi32(quad[0], quad[1]);
      const __m256i cd_low = _mm256_unpacklo_epi32(quad[2], quad[3]);
      const __m256i cd_high = _mm256_unpackhi_epi32(quad[2], quad[3]);
      quads[q][0] = _mm256_unpacklo_epi64(ab_low, cd_low);
      quads[q][1] = _mm256_unpackhi_epi64(ab_low, cd_low);
      quads[q][2] = _mm256_unpacklo_epi64(ab_high, cd_high);
      quads[q][3] = _mm256_unpackhi_epi64(ab_high, cd_high);
    }
    const auto put = [&](std::size_t four, __m256i columns) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + 32 * four), columns);
    };
    for (std::size_t i = 0; i < kQuad; ++i) {
      put(i, _mm256_permute2x128_si256(quads[0][i], quads[1][i], 0x20));
      put(kQuad + i, _mm256_permute2x128_si256(quads[0][i], quads[1][i], 0x31));
    }
  }
};

}  // namespace
}  // namespace winnow::ops::cpu

#include "ops/cpu/linear/x86/byte_kernel-inl.h"
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

const ByteKernel kAvxByteKernel{Lanes::kCount, Lanes::kInputs, pack, tile};

}  // namespace winnow::ops::cpu
