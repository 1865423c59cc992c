#include <hwy/base.h>
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "ops/cpu/linear/x86/byte_kernel.h"
#include "ops/cpu/linear/x86/nibbles.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")
namespace winnow::ops::cpu {
namespace {

// Interleave the lower or upper halves of each quarter. (GCC 12 warns about the undefined operand
// of the intrinsics.)
using Integers32 = std::int32_t __attribute__((vector_size(64)));
using Integers64 = std::int64_t __attribute__((vector_size(64)));

__m512i low_integers(__m512i a, __m512i b) {
  return __builtin_bit_cast(
      __m512i,
      __builtin_shufflevector(__builtin_bit_cast(Integers32, a), __builtin_bit_cast(Integers32, b),
                              0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29));
}

__m512i high_integers(__m512i a, __m512i b) {
  return __builtin_bit_cast(
      __m512i,
      __builtin_shufflevector(__builtin_bit_cast(Integers32, a), __builtin_bit_cast(Integers32, b),
                              2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31));
}

__m512i low_pairs(__m512i a, __m512i b) {
  return __builtin_bit_cast(__m512i, __builtin_shufflevector(__builtin_bit_cast(Integers64, a),
                                                             __builtin_bit_cast(Integers64, b), 0,
                                                             8, 2, 10, 4, 12, 6, 14));
}

__m512i high_pairs(__m512i a, __m512i b) {
  return __builtin_bit_cast(__m512i, __builtin_shufflevector(__builtin_bit_cast(Integers64, a),
                                                             __builtin_bit_cast(Integers64, b), 1,
                                                             9, 3, 11, 5, 13, 7, 15));
}

struct Lanes {
  static constexpr std::size_t kCount = 16;
  static constexpr std::size_t kInputs = 8;
  using Integers = __m512i;
  using Floats = __m512;

  static Integers repeat(std::int32_t value) { return _mm512_set1_epi32(value); }
  static Integers load(const std::uint8_t* from) { return _mm512_load_si512(from); }
  static Floats load(const float* from) { return _mm512_load_ps(from); }
  static void store(float* to, Floats values) { _mm512_store_ps(to, values); }

  /// sums + the products of each lane's four bytes with four columns of an input.
  static Integers add_dots(Integers sums, Integers rows, std::int32_t columns) {
    return _mm512_dpbusd_epi32(sums, rows, _mm512_set1_epi32(columns));
  }

  static Floats add_scaled(Floats sums, Integers products, Floats scales, float scale) {
    constexpr __mmask16 kAll = 0xFFFF;
    const Floats values = _mm512_maskz_cvtepi32_ps(kAll, products);
    return _mm512_fmadd_ps(values, scales * _mm512_set1_ps(scale), sums);
  }

  /// Writes the columns of the rows, four at a time.
  static void transpose(const __m256i (&rows)[kCount], std::uint8_t* to) {
    // Rows 0 to 7 lie in the lower halves, 8 to 15 in the upper ones.
    const auto both = [&](std::size_t r) -> __m512i {
      return __builtin_shufflevector(rows[r], rows[r + 8], 0, 1, 2, 3, 4, 5, 6, 7);
    };
    constexpr std::size_t kQuad = 4;  // rows of a quad
    __m512i quads[2][kQuad];          // [quad of rows][columns modulo 4]
    for (std::size_t q = 0; q < 2; ++q) {
      const __m512i a = both(kQuad * q);
      const __m512i b = both(kQuad * q + 1);
      const __m512i c = both(kQuad * q + 2);
      const __m512i d = both(kQuad * q + 3);
      const __m512i ab_low = low_integers(a, b);
      const __m512i ab_high = high_integers(a, b);
      const __m512i cd_low = low_integers(c, d);
      const __m512i cd_high = high_integers(c, d);
      quads[q][0] = low_pairs(ab_low, cd_low);
      quads[q][1] = high_pairs(ab_low, cd_low);
      quads[q][2] = low_pairs(ab_high, cd_high);
      quads[q][3] = high_pairs(ab_high, cd_high);
    }
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i last = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    for (std::size_t i = 0; i < kQuad; ++i) {
      _mm512_store_si512(to + 64 * i, _mm512_permutex2var_epi64(quads[0][i], first, quads[1][i]));
      _mm512_store_si512(to + 64 * (kQuad + i),
                         _mm512_permutex2var_epi64(quads[0][i], last, quads[1][i]));
    }
  }
};

}  // namespace
}  // namespace winnow::ops::cpu

#include "ops/cpu/linear/x86/byte_kernel-inl.h"
HWY_POP_ATTRIBUTES

namespace winnow::ops::cpu {

const ByteKernel kAvx512ByteKernel{Lanes::kCount, Lanes::kInputs, pack, tile};

}  // namespace winnow::ops::cpu
