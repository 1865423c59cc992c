// The layout of eight 4-bit codes in a 32-bit word of a device page.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace winnow::ops::cuda {

/// The lower three bits of code i are in nibble i, where they select bytes of a table. Its sign is
/// in a bit that this leaves free: for codes 0 to 3 the highest of bytes 0 to 3, for codes 4 to 7
/// the middle one. So the signs of four codes are one mask (q4_codes.cuh).
__host__ __device__ constexpr int sign_bit(int i) {
  return i < 4 ? 8 * i + 7 : 8 * (i - 4) + 3;
}

__host__ __device__ constexpr std::uint32_t place_code(std::uint32_t code, int i) {
  return (code & 7U) << (4 * i) | (code >> 3) << sign_bit(i);
}

__host__ __device__ constexpr std::uint32_t code_from(std::uint32_t word, int i) {
  return (word >> (4 * i) & 7U) | (word >> sign_bit(i) & 1U) << 3;
}

/// A code's position on a page: code `index` in the word at byte `offset`.
struct CodePlace {
  int offset;
  int index;
};

}  // namespace winnow::ops::cuda
