#include "base/sha256_compress.h"

#include <cpuid.h>
#include <immintrin.h>

namespace winnow {
namespace {

// Whether the CPU has SHA instructions. They expect the state in the order ABEF, CDGH.
bool has_instructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 29 & 1U) != 0 &&
         __builtin_cpu_supports("sse4.1");
}

__attribute__((target("sha,sse4.1"))) void compress_with_instructions(Sha256State& state,
                                                                      const std::byte* block) {
  const auto load = [](const auto* from) __attribute__((target("sha,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const __m128i to_big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(load(&state[0]), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(load(&state[4]), 0x1B);
  const __m128i abef_before = _mm_alignr_epi8(cdab, efgh, 8);
  const __m128i cdgh_before = _mm_blend_epi16(efgh, cdab, 0xF0);
  __m128i abef = abef_before;
  __m128i cdgh = cdgh_before;
  __m128i w[4];  // the last 16 words of the schedule
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) {
    __m128i& words = w[i % 4];
    if (i < 4) {
      words = _mm_shuffle_epi8(load(block + 16 * i), to_big_endian);
    } else {
      const __m128i last = w[(i + 3) % 4];
      const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(words, w[(i + 1) % 4]),
                                        _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
      words = _mm_sha256msg2_epu32(sum, last);
    }
    const __m128i keyed = _mm_add_epi32(words, load(&kSha256Constants[4 * i]));
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, keyed);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(keyed, 0x0E));
  }
  const __m128i feba = _mm_shuffle_epi32(_mm_add_epi32(abef, abef_before), 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh_before), 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace

void compress(Sha256State& state, const std::byte* block) {
  static const auto best = has_instructions() ? compress_with_instructions : compress_plainly;
  best(state, block);
}

}  // namespace winnow
