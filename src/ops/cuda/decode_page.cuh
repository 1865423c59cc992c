// Where the pages of a run are.
#pragma once

#include "ops/cuda/decode_attention_kernels.h"

namespace winnow::ops::cuda {

/// The number of no page: nothing is copied.
inline constexpr std::uint32_t kNoPage = 0xFFFFFFFFU;

/// A page's entries as bits: all of them, the first `count` of them.
inline constexpr std::uint32_t kWholePage = (1U << kPageEntries) - 1;
inline __device__ std::uint32_t first_entries(int count) {
  return count < kPageEntries ? (1U << max(count, 0)) - 1 : kWholePage;
}

/// In a page's tag, beside the bits of its visible entries: its tile is the row's last.
inline constexpr std::uint32_t kRowEnds = kWholePage + 1;

/// Page `p` of tile `tile` of all rows', which is one of row `row` or of a later one.
inline __device__ DecodePlan::Page find_page(const DecodeEntries& entries,
                                             const DecodePlan::Row* rows, int row, int tile, int p,
                                             int tile_pages) {
  while (tile >= rows[row].begin + rows[row].tiles) {
    ++row;
  }
  const DecodePlan::Row& planned = rows[row];
  const std::size_t state_row = planned.state_row;
  const int j = (tile - planned.begin) * tile_pages + p;
  const int archived = j - pages_for(planned.window_entries);
  const bool in_window = archived < 0;
  const int index = in_window ? j : archived;
  const std::uint32_t* pages = in_window
                                   ? entries.window_pages + state_row * entries.window_stride
                                   : entries.archive_pages + state_row * entries.archive_stride;
  std::uint32_t visible = first_entries(
      (in_window ? planned.window_entries : planned.archive_entries) - index * kPageEntries);
  if (in_window && planned.leaving / kPageEntries == j && planned.leaving >= 0) {
    visible &= ~(1U << planned.leaving % kPageEntries);
  }
  const bool last = tile + 1 == planned.begin + planned.tiles;
  return {visible != 0 ? __ldcg(pages + index) : kNoPage, visible | (last ? kRowEnds : 0U)};
}

}  // namespace winnow::ops::cuda
