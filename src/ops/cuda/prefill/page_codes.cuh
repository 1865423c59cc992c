// Reads codes from memory, eight neighbouring channels at a time, for code that does not read whole
// pages.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/pages/page_address.cuh"

namespace winnow::ops::cuda {

/// 8, 16 or 32 bytes, aligned to 8 or 16.
template <int Words>
__device__ void load_codes(const std::byte* from, std::uint32_t (&codes)[Words]) {
  static_assert(Words == 2 || Words % 4 == 0);
  if constexpr (Words == 2) {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
    codes[0] = x.x;
    codes[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < Words; i += 4) {
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(from) + i / 4);
      codes[i] = x.x;
      codes[i + 1] = x.y;
      codes[i + 2] = x.z;
      codes[i + 3] = x.w;
    }
  }
}

/// Eight codes of a row outside of pages (DevicePageLayout::row_bytes).
template <int Words>
__device__ void load_row_codes(const std::byte* from, std::uint32_t (&codes)[Words]) {
  if constexpr (Words == 1) {
    const std::uint32_t pairs = __ldg(reinterpret_cast<const std::uint32_t*>(from));
    codes[0] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      codes[0] |= place_code(pairs >> (4 * i) & 15U, i);
    }
  } else {
    load_codes(from, codes);
  }
}

/// Eight 4-bit codes of a page as one word; place(i): the position of the i-th.
template <class Place>
__device__ std::uint32_t collect_codes(const std::byte* page, const Place& place) {
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const CodePlace from = place(i);
    const std::uint32_t codes = __ldg(reinterpret_cast<const std::uint32_t*>(page + from.offset));
    word |= place_code(code_from(codes, from.index), i);
  }
  return word;
}

/// Codes of the key in slot `entry` of a page, channels [channel, channel + 8).
template <int D, int Bits, int Words>
__device__ void load_page_keys(const std::byte* page, int entry, int channel,
                               std::uint32_t (&codes)[Words]) {
  constexpr PageAddress kAddress{D, Bits};
  if constexpr (Bits > 4) {
    load_codes(page + kAddress.key(entry, channel), codes);
  } else if constexpr (D / 4 % 8 == 0) {  // the codes are one word
    codes[0] = __ldg(
        reinterpret_cast<const std::uint32_t*>(page + kAddress.key_code(entry, channel).offset));
  } else {
    codes[0] = collect_codes(page, [&](int i) { return kAddress.key_code(entry, channel + i); });
  }
}

/// Codes of the values in slots 2 pair and 2 pair + 1 of a page, channels [channel, channel + 8).
template <int D, int Bits, int Words>
__device__ void load_page_values(const std::byte* page, int pair, int channel,
                                 std::uint32_t (&codes)[2][Words]) {
  constexpr PageAddress kAddress{D, Bits};
  if constexpr (Bits == 4) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      codes[k][0] = collect_codes(
          page, [&](int i) { return kAddress.value_code(2 * pair + k, channel + i); });
    }
  } else if constexpr (D / 8 % 8 ==
                       0) {  // the codes are adjacent, alternating between the two slots
    std::uint32_t both[2 * Words];
    load_codes(page + kAddress.value(2 * pair, channel), both);
#pragma unroll
    for (int i = 0; i < Words; ++i) {
      codes[0][i] = __byte_perm(both[2 * i], both[2 * i + 1], Bits == 8 ? 0x6420 : 0x5410);
      codes[1][i] = __byte_perm(both[2 * i], both[2 * i + 1], Bits == 8 ? 0x7531 : 0x7632);
    }
  } else {
    using Code = std::conditional_t<Bits == 8, std::uint8_t, std::uint16_t>;
    constexpr int kPerWord = 32 / Bits;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int word = i / 2 / kPerWord;
      const int place = i / 2 % kPerWord;
      const auto* code =
          reinterpret_cast<const Code*>(page + kAddress.value(2 * pair + i % 2, channel + i / 2));
      const std::uint32_t shifted = std::uint32_t{__ldg(code)} << (place * Bits);
      codes[i % 2][word] = place == 0 ? shifted : codes[i % 2][word] | shifted;
    }
  }
}

}  // namespace winnow::ops::cuda
