// A tile of prefill attention: its queries and the entries that they see.
#pragma once

#include "ops/cuda/prefill/prefill_attention_kernels.h"
#include "ops/cuda/score_tile.cuh"

namespace winnow::ops::cuda {

/// The query rows of a tile are `tokens` consecutive tokens with all query heads of one KV head,
/// row r = token r / group, head r % group. The entries that any of them sees are a list of
/// gathered rows: the archive's first `archive`, then the band's from `band` on; both are multiples
/// of 8, so that any 8 neighbours in the list are neighbours in memory. (Split-K reads pages
/// instead, so there `archive` is a multiple of a page's entries.)
struct PrefillTile {
  int head;
  int first;   // token
  int tokens;  // in the tile; the last tile may have fewer
  int archive;
  int archive_least;  // the archive entries that the first token sees
  int band;
  int length;

  PrefillTile() = default;
  /// Tile `index`, in the kernels' order; `archive` is a multiple of `unit`.
  __device__ PrefillTile(const PrefillArguments& arguments, int index, int unit = 8) {
    const PrefillChunk& chunk = arguments.chunk;
    const int each = arguments.tile_tokens;
    head = index % arguments.kv_heads;
    first = chunk.first_out + index / arguments.kv_heads * each;
    tokens = min(each, chunk.tokens - first);
    const std::int32_t* counts = chunk.archive_counts + std::size_t(head) * chunk.tokens + first;
    archive_least = __ldg(counts);
    archive = (__ldg(counts + tokens - 1) + unit - 1) / unit * unit;
    band = max(0, chunk.lead + first - chunk.window) / 8 * 8;
    length = archive + chunk.lead + first + tokens - band;
  }

  /// The index of a band entry in the list.
  __device__ int band_place(int entry) const { return archive + entry - band; }
  /// The gathered row at an index of the list.
  __device__ int row_at(int place, const GatheredRows& rows) const {
    return place < archive ? place : rows.archive_rows + band + place - archive;
  }
};

/// The places of a tile's list that a token sees: [0, archive) and [first, last].
struct VisiblePlaces {
  int archive;
  int first;
  int last;

  VisiblePlaces() = default;
  __device__ VisiblePlaces(const PrefillArguments& arguments, const PrefillTile& tile, int token)
      : archive(arguments.chunk
                    .archive_counts[std::size_t(tile.head) * arguments.chunk.tokens + token]),
        first(tile.band_place(max(0, arguments.chunk.lead + token - arguments.chunk.window))),
        last(tile.band_place(arguments.chunk.lead + token)) {}
};

/// Whether all tokens of a tile see the places [place, place + count).
__device__ inline bool all_see(const PrefillArguments& arguments, const PrefillTile& tile,
                               int place, int count) {
  const int newest = arguments.chunk.lead + tile.first;
  const int oldest = max(0, newest + tile.tokens - 1 - arguments.chunk.window);
  return place + count <= tile.archive_least ||
         (place >= tile.band_place(oldest) && place + count <= tile.band_place(newest) + 1);
}

template <int N>
__device__ std::uint32_t columns_seen(const VisiblePlaces& visible, int place) {
  return columns_below<N>(visible.archive - place) |
         (columns_below<N>(visible.last + 1 - place) & ~columns_below<N>(visible.first - place));
}

/// A tile's row in the caller's arrays. Surplus rows repeat the last one, including its result.
struct QueryRow {
  int token;
  std::size_t offset;  // of its first channel in query and out

  QueryRow() = default;
  __device__ QueryRow(const PrefillArguments& arguments, const PrefillTile& tile, int row,
                      int head_dim) {
    const int group = arguments.group;
    row = min(row, tile.tokens * group - 1);
    token = tile.first + row / group;
    offset = (std::size_t(token) * arguments.kv_heads * group + tile.head * group + row % group) *
             head_dim;
  }
};

}  // namespace winnow::ops::cuda
