// Single codes of a page on the device (DevicePageLayout), for those who do not read it whole.
#pragma once

#include <cstdint>

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

/// Eight codes from channel d on (a multiple of 8) of a slot's key or value, in order.
template <int D, int Bytes>
__device__ void load_page_key(const std::byte* page, int slot, int d,
                              std::uint32_t (&codes)[2 * Bytes]) {
  memcpy(codes, __builtin_assume_aligned(page + (slot * D + d) * Bytes, 8 * Bytes), 8 * Bytes);
}
template <int D, int Bytes>
__device__ void load_page_value(const std::byte* page, int slot, int d,
                                std::uint32_t (&codes)[2 * Bytes]) {
  constexpr int kPerWord = 4 / Bytes;
  const std::byte* values = page + kPageValues<D, Bytes>;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::byte* at = values + page_value_index<D>(slot, d + i) * Bytes;
    std::uint32_t code;
    if constexpr (Bytes == 1) {
      code = *reinterpret_cast<const std::uint8_t*>(at);
    } else {
      code = *reinterpret_cast<const std::uint16_t*>(at);
    }
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
