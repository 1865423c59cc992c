// A warp processes a run of tiles independently: it copies their pages to shared memory, several
// tiles ahead, across the ends of rows, and writes its part of each row, or the whole row.
#pragma once

#include <cuda_pipeline.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/decode/decode_attention_kernels.h"
#include "ops/cuda/decode/page_stream.cuh"
#include "ops/cuda/decode/warp_attention.cuh"

namespace winnow::ops::cuda {

__host__ __device__ constexpr int decode_page_bytes(int head_dim, int code_bits) {
  return PageAddress{head_dim, code_bits}.page_bytes();
}

/// A warp's tiles in shared memory: one is being read, the others are in flight. More of them would
/// only make all other loads wait longer.
__host__ __device__ constexpr int stages(int head_dim, int code_bits) {
  const int tiles = tile_pages(head_dim) == 1 ? 3 : 2;
  return code_bits == 4 ? 2 * tiles : tiles;
}

/// A warp's queries and pages.
__host__ __device__ constexpr int warp_bytes(int head_dim, int code_bits, int group) {
  const int tile_bytes = tile_pages(head_dim) * decode_page_bytes(head_dim, code_bits);
  return group * head_dim * int{sizeof(float)} + stages(head_dim, code_bits) * tile_bytes;
}

/// A page of a tile. Its fields are computed on use, long after the table look-up was issued, so no
/// warp waits for the tables.
struct TilePage {
  std::uint32_t listed = kNoPage;  // its page number, if it holds entries
  int before = 0;                  // entries of its list on earlier pages
  int count = 0;                   // entries of its list (window or archive)
  bool row_ends = false;           // with this page's tile

  __device__ int entries() const { return max(0, min(kPageEntries, count - before)); }
  __device__ std::uint32_t number() const { return count > before ? listed : kNoPage; }
  __device__ int tag() const { return entries() | (row_ends ? kRowEnds : 0); }
  static constexpr int kRowEnds = 256;
};

/// Page `p` of tile `tile` of all rows' tiles, which belongs to row `row` or a later one; without
/// entries if it does not exist. Until the new token is stored, the pages that storing it may
/// modify (its slot's page in the window, the last of the archive) count as absent.
template <int kTilePages>
__device__ TilePage find_page(const DecodeArguments& arguments, int row, int tile, int p,
                              bool token_taken) {
  const DecodeEntries& entries = arguments.entries;
  const DecodePlan::Row* rows = arguments.plan.rows;
  while (tile >= rows[row].begin + rows[row].tiles) {
    ++row;
  }
  const DecodePlan::Row& planned = rows[row];
  const std::size_t state_row = planned.state_row;
  const int j = (tile - planned.begin) * kTilePages + p;
  const int archived = j - pages_for(planned.window_entries);
  TilePage page;
  page.row_ends = tile + 1 == planned.begin + planned.tiles;
  if (archived < 0) {
    if (token_taken || j != planned.new_token_page) {
      page.listed = __ldcg(entries.window_pages + state_row * entries.window_stride + j);
      page.before = j * kPageEntries;
      page.count = planned.window_entries;
    }
  } else if (archived + 1 < planned.archive_pages ||
             (archived < planned.archive_pages && token_taken)) {
    page.listed = __ldcg(entries.archive_pages + state_row * entries.archive_stride + archived);
    page.before = archived * kPageEntries;
    page.count = page.before + kPageEntries;
    if (archived + 1 == planned.archive_pages) {
      page.count = __ldcg(entries.archive_counts + state_row);
    }
  }
  return page;
}

/// Attention over a warp's run. `kReadsAhead`: a tile is copied to registers and its stage refilled
/// before the tile is processed.
template <class Codes, int D, bool kReadsAhead>
class RunAttention {
 public:
  __device__ RunAttention(const DecodeArguments& arguments, const DecodePlan::Run& run,
                          std::byte* memory, StageState<tile_pages(D)>* states)
      : arguments_(arguments),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        run_(run),
        query_(reinterpret_cast<float*>(memory)),
        stream_(arguments.entries.pool, memory + arguments.group * D * sizeof(float), states),
        row_(run_.row) {}

  /// Calls put(row, attention, whole) at the end of each row's share of the run; `whole`: it is all
  /// of the row.
  template <class Put>
  __device__ void run(const Put& put) {
    if (run_.count == 0) {
      winnow::cuda::wait_for_predecessor();  // the kernel ends after it even if all runs are empty
      return;
    }
    begins_row_ = arguments_.plan.rows[row_].begin == run_.begin;
    take(find(0, false));
    put_first_tiles(number_ != kNoPage);
    winnow::cuda::wait_for_predecessor();
    winnow::cuda::release_successor();
    copy_query(row_);
    const bool missing = number_ == kNoPage && lane_ < run_.count * kTilePages;
    if (__any_sync(kAllLanes, missing)) {
      take(find(0, true));
      put_first_tiles(missing);
    }
    if (run_.count > kFound) {
      ahead_ = find(kFound, true);
    }
    __syncwarp();
    attend(put);
  }

 private:
  static constexpr int kTilePages = tile_pages(D);
  static constexpr int kStages = stages(D, kCodeBits<Codes>);
  static constexpr int kFound = kWarpSize / kTilePages;  // tiles that are looked up at once

  // The lane's page of the run's tiles [first, first + kFound).
  __device__ TilePage find(int first, bool token_taken) const {
    const int tile = first + lane_ / kTilePages;
    return tile < run_.count ? find_page<kTilePages>(arguments_, row_, run_.begin + tile,
                                                     lane_ % kTilePages, token_taken)
                             : TilePage{};
  }

  // Makes it the lane's page among those requested next.
  __device__ void take(const TilePage& page) {
    number_ = page.number();
    tag_ = page.tag();
  }

  // Each lane requests its page of the first kStages tiles, if `wanted`.
  __device__ void put_first_tiles(bool wanted) const {
    const int tile = lane_ / kTilePages;
    stream_.put(wanted && tile < min(kStages, run_.count), tile, lane_ % kTilePages, number_, tag_);
  }

  // Requests the run's tile `tile`, the next in order, into the stage of the front tile.
  __device__ void replace_front(int tile) {
    if (tile < run_.count) {
      if (tile % kFound == 0) {
        take(ahead_);
        ahead_ = find(tile + kFound, true);
      }
      __syncwarp();  // wait until every lane has read the front tile
      stream_.put(lane_ / kTilePages == tile % kFound, stream_.stage(), lane_ % kTilePages, number_,
                  tag_);
    }
    stream_.drop_front();
  }

  // Starts to copy a row's queries.
  __device__ void copy_query(int row) const {
    const int width = arguments_.group * D;
    const float* from = arguments_.query + std::size_t(row) * width;
#pragma unroll 1
    for (int i = 4 * lane_; i < width; i += 4 * kWarpSize) {
      __pipeline_memcpy_async(query_ + i, from + i, 16);
    }
    __pipeline_commit();
  }

  // Processes all tiles of the run.
  template <class Put>
  __device__ void attend(const Put& put_part) {
    for (int tile = 0; tile < run_.count;) {
      __pipeline_wait_prior(0);
      __syncwarp();
      attention_.begin(query_, arguments_.group, arguments_.scale);
      __syncwarp();  // wait until every lane has read the queries
      if (tile + 1 < run_.count && row_ + 1 < arguments_.plan.batch_rows) {
        copy_query(row_ + 1);  // in case the run continues with that row
      }
      while (attend_tile(tile++)) {
      }
      put_part(row_++, attention_, begins_row_ && ends_row_);
      begins_row_ = true;
    }
  }

  // Processes the next tile. Returns whether the run has more tiles of the same row.
  __device__ bool attend_tile(int tile) {
    const std::byte* front = stream_.front();
    SharedPage<Codes, D> pages[kTilePages];
    std::uint32_t seen[kTilePages];
    std::uint32_t some = 0;
#pragma unroll
    for (int p = 0; p < kTilePages; ++p) {
      pages[p] = SharedPage<Codes, D>(front + p * decode_page_bytes(D, kCodeBits<Codes>));
      seen[p] = first_entries(stream_.tag(p) % TilePage::kRowEnds);
      some |= seen[p];
    }
    ends_row_ = stream_.tag(0) >= TilePage::kRowEnds;
    const bool more = !ends_row_ && tile + 1 < run_.count;
    if constexpr (kReadsAhead) {
      HeldPage<Codes, D> held[kTilePages];
#pragma unroll
      for (int p = 0; p < kTilePages; ++p) {
        held[p].read(pages[p]);
      }
      replace_front(tile + kStages);
      if (some != 0) {
        attention_.attend(held, seen);
      }
    } else {
      if (some != 0) {
        attention_.attend(pages, seen);
      }
      replace_front(tile + kStages);
    }
    return more;
  }

  const DecodeArguments& arguments_;
  const int lane_;
  const DecodePlan::Run run_;
  float* query_;  // [group, D]
  PageStream<decode_page_bytes(D, kCodeBits<Codes>), kTilePages, kStages> stream_;
  WarpAttention<Codes, D, kTilePages> attention_;
  int row_;
  bool begins_row_ = true;          // the run has the first tile of row_
  bool ends_row_ = false;           // the last tile that was processed is the last of row_
  std::uint32_t number_ = kNoPage;  // the number of the lane's page among the next kFound tiles
  int tag_ = 0;
  TilePage ahead_;  // the lane's page among the kFound tiles after those
};

}  // namespace winnow::ops::cuda
