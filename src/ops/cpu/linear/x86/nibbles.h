// Unpacks codes of 4 bits.
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include <cstdint>

HWY_PUSH_ATTRIBUTES("avx2")
namespace winnow::ops::cpu {

/// 32 nibbles, each in a byte, in the order of a weight's columns (ops/weight.h).
inline __m256i nibbles(const std::uint8_t* from) {
  const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m256i words = _mm256_cvtepu8_epi16(pairs);
  const __m256i even = _mm256_and_si256(words, _mm256_set1_epi16(0x0F));
  const __m256i odd = _mm256_and_si256(_mm256_slli_epi16(words, 4), _mm256_set1_epi16(0x0F00));
  return _mm256_or_si256(even, odd);
}

}  // namespace winnow::ops::cpu
HWY_POP_ATTRIBUTES
