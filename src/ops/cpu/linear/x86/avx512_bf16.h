// Shared by the files that use dot products of bf16.
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/linear/row_blocks.h"

// The instructions that has_bf16_dots() checks for.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512bf16")
namespace winnow::ops::cpu {

/// The bf16 that the mask `seen` selects, zeros for the others. (With a plain load and a cast, GCC
/// 12 writes the vector to memory and reads it again.)
inline __m512bh load_bf16(const bf16* from, __mmask32 seen = ~__mmask32{0}) {
  return __builtin_bit_cast(__m512bh, _mm512_maskz_loadu_epi16(seen, from));
}

/// The bf16 of 64 integers, from their lower and upper bytes: `first` gets the first eight of each
/// quarter, `last` the others.
inline void interleave(__m512i lower, __m512i upper, __m512bh& first, __m512bh& last) {
  using Bytes = std::uint8_t __attribute__((vector_size(64)));
  const auto a = __builtin_bit_cast(Bytes, lower);
  const auto b = __builtin_bit_cast(Bytes, upper);
  first = __builtin_bit_cast(
      __m512bh,
      __builtin_shufflevector(a, b, 0, 64, 1, 65, 2, 66, 3, 67, 4, 68, 5, 69, 6, 70, 7, 71, 16, 80,
                              17, 81, 18, 82, 19, 83, 20, 84, 21, 85, 22, 86, 23, 87, 32, 96, 33,
                              97, 34, 98, 35, 99, 36, 100, 37, 101, 38, 102, 39, 103, 48, 112, 49,
                              113, 50, 114, 51, 115, 52, 116, 53, 117, 54, 118, 55, 119));
  last = __builtin_bit_cast(
      __m512bh, __builtin_shufflevector(a, b, 8, 72, 9, 73, 10, 74, 11, 75, 12, 76, 13, 77, 14, 78,
                                        15, 79, 24, 88, 25, 89, 26, 90, 27, 91, 28, 92, 29, 93, 30,
                                        94, 31, 95, 40, 104, 41, 105, 42, 106, 43, 107, 44, 108, 45,
                                        109, 46, 110, 47, 111, 56, 120, 57, 121, 58, 122, 59, 123,
                                        60, 124, 61, 125, 62, 126, 63, 127));
}

/// Element i of the result is the sum of all elements of x[i].
inline __m128 lane_sums(const __m512 (&x)[kRowBlock]) {
  static_assert(kRowBlock == 4);
  __m512 pairs[2];  // per quarter, interleaved halves of x[0] and x[1]; of x[2] and x[3]
  for (std::size_t i = 0; i < 2; ++i) {
    const __m512 a = x[2 * i];
    const __m512 b = x[2 * i + 1];
    pairs[i] =
        __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
        __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  const __m512 quarters = __builtin_shufflevector(pairs[0], pairs[1], 0, 1, 16, 17, 4, 5, 20, 21, 8,
                                                  9, 24, 25, 12, 13, 28, 29) +
                          __builtin_shufflevector(pairs[0], pairs[1], 2, 3, 18, 19, 6, 7, 22, 23,
                                                  10, 11, 26, 27, 14, 15, 30, 31);
  const __m256 halves = __builtin_shufflevector(quarters, quarters, 0, 1, 2, 3, 4, 5, 6, 7) +
                        __builtin_shufflevector(quarters, quarters, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(halves, halves, 0, 1, 2, 3) +
         __builtin_shufflevector(halves, halves, 4, 5, 6, 7);
}

}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES
