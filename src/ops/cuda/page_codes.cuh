// Single codes of a page on the device (DevicePageLayout), for those who do not read it whole.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "ops/kv_page.h"

namespace winnow::ops::cuda {

/// Where a page's values begin.
template <int D, int Bytes>
inline constexpr int kPageValues = kPageEntries* D* Bytes;

/// Where channel d of a slot lies among the values of a page.
template <int D>
__device__ int page_value_index(int slot, int d) {
  const int chunk = (slot / 8 * 8 + d / (D / 8)) * 4 + slot % 8 / 2;
  return (chunk * (D / 8) + d % (D / 8)) * 2 + slot % 2;
}

/// Eight neighbouring codes.
template <int Words>
__device__ void load_codes(const std::byte* from, std::uint32_t (&codes)[Words]) {
  static_assert(Words == 2 || Words == 4);
  if constexpr (Words == 2) {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
    codes[0] = x.x;
    codes[1] = x.y;
  } else {
    const uint4 x = __ldg(reinterpret_cast<const uint4*>(from));
    codes[0] = x.x;
    codes[1] = x.y;
    codes[2] = x.z;
    codes[3] = x.w;
  }
}

/// Eight codes from channel d on (a multiple of 8) of a slot's key or value, in order.
template <int D, int Bytes>
__device__ void load_page_key(const std::byte* page, int slot, int d,
                              std::uint32_t (&codes)[2 * Bytes]) {
  load_codes(page + (slot * D + d) * Bytes, codes);
}
template <int D, int Bytes>
__device__ void load_page_value(const std::byte* page, int slot, int d,
                                std::uint32_t (&codes)[2 * Bytes]) {
  using Code = std::conditional_t<Bytes == 1, std::uint8_t, std::uint16_t>;
  constexpr int kPerWord = 4 / Bytes;
  const auto* values = reinterpret_cast<const Code*>(page + kPageValues<D, Bytes>);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t code = __ldg(values + page_value_index<D>(slot, d + i));
    const std::uint32_t shifted = code << (i % kPerWord * 8 * Bytes);
    codes[i / kPerWord] = i % kPerWord == 0 ? shifted : codes[i / kPerWord] | shifted;
  }
}

/// The scale of a slot's key (part 0) or value (part 1), 8-bit formats only.
template <int D, int Bytes>
__device__ const bf16* page_scale(const std::byte* page, int slot, int part) {
  return reinterpret_cast<const bf16*>(page + 2 * kPageValues<D, Bytes>) + part * kPageEntries +
         slot;
}

}  // namespace winnow::ops::cuda
