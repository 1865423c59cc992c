// How eight 4-bit codes lie in a 32-bit word of a device page.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace winnow::ops::cuda {

/// The number of code i, its lower three bits, is nibble i: what selects bytes of a table. Its sign
/// lies in a bit that this leaves free: that of codes 0 to 3 at the top of bytes 0 to 3, that of
/// codes 4 to 7 in the middle. So the signs of four codes are one mask (q4_codes.cuh).
__host__ __device__ constexpr int sign_bit(int i) {
  return i < 4 ? 8 * i + 7 : 8 * (i - 4) + 3;
}

__host__ __device__ constexpr std::uint32_t place_code(std::uint32_t code, int i) {
  return (code & 7U) << (4 * i) | (code >> 3) << sign_bit(i);
}

__host__ __device__ constexpr std::uint32_t code_from(std::uint32_t word, int i) {
  return (word >> (4 * i) & 7U) | (word >> sign_bit(i) & 1U) << 3;
}

/// Where a code lies on a page: in the word at byte `offset`, as its code `index`.
struct CodePlace {
  int offset;
  int index;
};

}  // namespace winnow::ops::cuda
