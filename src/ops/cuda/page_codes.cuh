// Codes from memory, eight neighbouring channels at a time, for those who do not read a page whole.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/page_address.cuh"

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

/// Codes of the values in slots 2 pair and 2 pair + 1 of a page, channels [channel, channel + 8).
template <int D, int Bytes>
__device__ void load_page_values(const std::byte* page, int pair, int channel,
                                 std::uint32_t (&codes)[2][2 * Bytes]) {
  constexpr PageAddress kAddress{D, Bytes};
  if constexpr (D / 8 % 8 == 0) {  // they lie side by side, those of the two slots in turn
    std::uint32_t both[4 * Bytes];
    load_codes(page + kAddress.value(2 * pair, channel), both);
#pragma unroll
    for (int i = 0; i < 2 * Bytes; ++i) {
      codes[0][i] = __byte_perm(both[2 * i], both[2 * i + 1], Bytes == 1 ? 0x6420 : 0x5410);
      codes[1][i] = __byte_perm(both[2 * i], both[2 * i + 1], Bytes == 1 ? 0x7531 : 0x7632);
    }
  } else {
    using Code = std::conditional_t<Bytes == 1, std::uint8_t, std::uint16_t>;
    constexpr int kPerWord = 4 / Bytes;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int word = i / 2 / kPerWord;
      const int place = i / 2 % kPerWord;
      const auto* code =
          reinterpret_cast<const Code*>(page + kAddress.value(2 * pair + i % 2, channel + i / 2));
      const std::uint32_t shifted = std::uint32_t{__ldg(code)} << (place * 8 * Bytes);
      codes[i % 2][word] = place == 0 ? shifted : codes[i % 2][word] | shifted;
    }
  }
}

}  // namespace winnow::ops::cuda
