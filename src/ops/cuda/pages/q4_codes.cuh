// 4-bit codes (ops/codebook.h) as operands of the matrix instructions.
#pragma once

#include "ops/cuda/pages/code_word.h"
#include "ops/cuda/pages/kv_codes.cuh"

namespace winnow::ops::cuda {

/// Levels are halves. One table of eight has their lower bytes, another their upper bytes:
/// one instruction looks up four codes.
struct Q4Codes {
  using Pair = __half2;
  static constexpr bool kScaled = true;
  static constexpr float kWeightExponent =
      2.0F;  // the scale is an entry's root mean square, not 1 / 127 of its maximum
  static __device__ Pair round(float a, float b) { return __floats2half2_rn(a, b); }
  template <int Words>
  static __device__ std::uint32_t pair(const std::uint32_t (&words)[Words], int i) {
    const std::uint32_t word = words[i / 4];
    const bool upper = i % 4 / 2 != 0;  // the second four codes of the word
    const std::uint32_t numbers = (word & 0x77777777U) >> (upper ? 16 : 0);
    const std::uint32_t signs = (upper ? word << 4 : word) & 0x80808080U;
    const std::uint32_t low = __byte_perm(kLower[0], kLower[1], numbers);
    const std::uint32_t high = __byte_perm(kUpper[0], kUpper[1], numbers) | signs;
    return __byte_perm(low, high, i % 2 == 0 ? 0x5140 : 0x7362);
  }

 private:
  // Bytes of kLevels as halves: 301c 3635 3941 3b8a 3d06 3e79 4023 4177.
  static constexpr std::uint32_t kLower[2] = {0x8A41351CU, 0x77237906U};
  static constexpr std::uint32_t kUpper[2] = {0x3B393630U, 0x41403E3DU};
};

/// Bits of a code in memory.
template <class Codes>
inline constexpr int kCodeBits = 8 * Codes::kBytes;
template <>
inline constexpr int kCodeBits<Q4Codes> = 4;

}  // namespace winnow::ops::cuda
