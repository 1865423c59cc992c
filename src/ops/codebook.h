// The codebook of 4-bit entries: the Lloyd-Max quantiser with 16 levels for a standard normal
// distribution (Max 1960), rounded to half precision. Its relative error is 0.0095.
#pragma once

#include <cstddef>
#include <cstdint>

namespace winnow::ops {

/// The lower three bits of a code index this table, its highest bit is the sign. All are halves.
inline constexpr float kLevels[8] = {0.12841796875F, 0.387939453125F, 0.65673828125F, 0.9423828125F,
                                     1.255859375F,   1.6181640625F,   2.068359375F,   2.732421875F};

inline float level_of(std::uint32_t code) {
  return code >= 8 ? -kLevels[code - 8] : kLevels[code];
}

/// The code whose level is nearest to x; on a tie, the one nearer to zero. NaN gets a code, too.
constexpr std::uint32_t nearest_code(float x) {
  // Midpoints between adjacent levels; a local copy, because device code cannot index globals.
  constexpr float kBorders[7] = {0.2581787109375F, 0.5223388671875F, 0.799560546875F,
                                 1.09912109375F,   1.43701171875F,   1.84326171875F,
                                 2.400390625F};
  const float size = x < 0.0F ? -x : x;
  std::uint32_t code = x < 0.0F ? 8U : 0U;
  for (const float border : kBorders) {
    code += size > border ? 1U : 0U;
  }
  return code;
}

/// Code `index` of an array in memory that packs 16 codes into two 32-bit words: code i is nibble
/// i / 2 of word i % 2 (PageLayout).
inline std::uint32_t packed_code(const std::byte* codes, std::size_t index) {
  const std::byte* place = codes + index / 16 * 8 + index % 2 * 4 + index % 16 / 4;
  return std::to_integer<std::uint32_t>(*place) >> (index % 4 / 2 * 4) & 15U;
}

inline void set_packed_code(std::byte* codes, std::size_t index, std::uint32_t code) {
  std::byte* place = codes + index / 16 * 8 + index % 2 * 4 + index % 16 / 4;
  const auto shift = index % 4 / 2 * 4;
  *place = (*place & ~(std::byte{15} << shift)) | (static_cast<std::byte>(code) << shift);
}

}  // namespace winnow::ops
