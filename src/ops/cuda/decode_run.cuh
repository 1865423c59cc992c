// A warp's run of tiles: it copies their pages to shared memory, several tiles ahead, past the end
// of a row as well, and writes its part of each row. What kernels of decode attention are made of.
#pragma once

#include <cuda_pipeline.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/decode_page.cuh"
#include "ops/cuda/page_stream.cuh"
#include "ops/cuda/warp_attention.cuh"

namespace winnow::ops::cuda {

inline constexpr int kDecodeThreads = kDecodeWarps * kWarpSize;

__host__ __device__ constexpr int page_bytes(int head_dim, int code_bits) {
  return PageAddress{head_dim, code_bits}.page_bytes();
}

/// Tiles of a warp in shared memory: one being read, the others on their way. More of them would
/// only make everybody else's loads wait longer.
__host__ __device__ constexpr int decode_stages(int head_dim, int code_bits) {
  const int tiles = tile_pages(head_dim) == 1 ? 3 : 2;
  return code_bits == 4 ? 2 * tiles : tiles;
}

/// A warp's queries and pages in shared memory.
__host__ __device__ constexpr int decode_warp_bytes(int head_dim, int code_bits, int group) {
  const int tile_bytes = tile_pages(head_dim) * page_bytes(head_dim, code_bits);
  return group * head_dim * int{sizeof(float)} + decode_stages(head_dim, code_bits) * tile_bytes;
}

/// A run of the plan, `worker`'s. `Queries` says where a row's queries lie once the predecessor is
/// complete, and what is to be done to them:
///   const float* of(int row)                [group, D], copied to shared memory
///   auto prepare(int row)                   what finish() wants to be on its way before
///   void finish(prepared, row, float* query)  by the warp, in shared memory
template <class Codes, int D, class Queries>
class RunAttention {
 public:
  /// memory: decode_warp_bytes() of shared memory.
  __device__ RunAttention(const DecodeArguments& arguments, const Queries& queries, int worker,
                          std::byte* memory, StageState<tile_pages(D)>* states)
      : arguments_(arguments),
        queries_(queries),
        worker_(worker),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        run_(arguments.plan.runs[worker]),
        query_(reinterpret_cast<float*>(memory)),
        stream_(arguments.entries.pool, memory + arguments.group * D * sizeof(float), states),
        row_(run_.row),
        next_(arguments.plan.first_pages != nullptr
                  ? arguments.plan.first_pages[worker * DecodePlan::kFirstPages +
                                               lane_ % DecodePlan::kFirstPages]
                  : DecodePlan::Page{kNoPage, 0}) {}

  __device__ void run() {
    if (run_.count == 0) {
      return;
    }
    const bool named = arguments_.plan.first_pages != nullptr;  // in next_ already
    if (!named) {
      next_ = find(0);
    }
    put_first_tiles();
    if (named && run_.count > kStages) {
      next_ = find(0);
    }
    if (run_.count > kFound) {
      ahead_ = find(kFound);
    }
    winnow::cuda::wait_for_predecessor();
    winnow::cuda::release_successor();
    copy_query(row_);
    attend();
  }

 private:
  static constexpr int kTilePages = tile_pages(D);
  static constexpr int kStages = decode_stages(D, kCodeBits<Codes>);
  static_assert(kStages * kTilePages <= DecodePlan::kFirstPages);
  static constexpr int kFound = kWarpSize / kTilePages;  // tiles that are found at once

  // The lane's page of the run's tiles [first, first + kFound).
  __device__ DecodePlan::Page find(int first) const {
    const int tile = first + lane_ / kTilePages;
    return tile < run_.count ? find_page(arguments_.entries, arguments_.plan.rows, row_,
                                         run_.begin + tile, lane_ % kTilePages, kTilePages)
                             : DecodePlan::Page{kNoPage, 0};
  }

  // Puts the page that a lane has found.
  __device__ void put(int stage, int p, int lane) const {
    stream_.put(stage, p, __shfl_sync(kAllLanes, next_.number, lane),
                static_cast<int>(__shfl_sync(kAllLanes, next_.tag, lane)));
  }

  __device__ void put_first_tiles() const {
#pragma unroll 1
    for (int i = 0; i < min(kStages, run_.count) * kTilePages; ++i) {
      put(i / kTilePages, i % kTilePages, i);
    }
  }

  // Puts the run's tile `tile`, which comes next in order, in the place of the front one.
  __device__ void replace_front(int tile) {
    if (tile < run_.count) {
      if (tile % kFound == 0) {
        next_ = ahead_;
        ahead_ = find(tile + kFound);
      }
      __syncwarp();  // every lane has read the front
#pragma unroll
      for (int p = 0; p < kTilePages; ++p) {
        put(stream_.stage(), p, tile % kFound * kTilePages + p);
      }
    }
    stream_.drop_front();
  }

  // Starts to copy the queries of a row.
  __device__ void copy_query(int row) const {
    const float* from = queries_.of(row);
#pragma unroll 1
    for (int i = 4 * lane_; i < arguments_.group * D; i += 4 * kWarpSize) {
      __pipeline_memcpy_async(query_ + i, from + i, 16);
    }
    __pipeline_commit();
  }

  // All tiles of the run.
  __device__ void attend() {
    for (int tile = 0; tile < run_.count;) {
      const auto prepared = queries_.prepare(row_);
      __pipeline_wait_prior(0);
      __syncwarp();
      queries_.finish(prepared, row_, query_);
      attention_.begin(query_, arguments_.group, arguments_.scale);
      __syncwarp();  // every lane has read the queries
      if (tile + 1 < run_.count && row_ + 1 < arguments_.plan.batch_rows) {
        copy_query(row_ + 1);  // in case that the run goes on with it
      }
      while (attend_tile(tile++)) {
      }
      const int group = arguments_.group;
      const std::size_t part = part_of(worker_, row_++);
      attention_.write(
          reinterpret_cast<float4*>(arguments_.plan.partial_out) + part * group * (D / 4),
          arguments_.plan.partial_sums + part * group, group);
    }
  }

  // The next tile. Returns whether there are more of its row in the run.
  __device__ bool attend_tile(int tile) {
    const std::byte* front = stream_.front();
    std::uint32_t visible[kTilePages];
    std::uint32_t any = 0;
#pragma unroll
    for (int p = 0; p < kTilePages; ++p) {
      visible[p] = stream_.tag(p) & kWholePage;
      any |= visible[p];
    }
    const bool more = (stream_.tag(0) & kRowEnds) == 0 && tile + 1 < run_.count;
    if (any != 0) {
      attention_.attend(front, visible);
    }
    replace_front(tile + kStages);
    return more;
  }

  const DecodeArguments& arguments_;
  const Queries& queries_;
  const int worker_;
  const int lane_;
  const DecodePlan::Run run_;
  float* query_;  // [group, D]
  PageStream<page_bytes(D, kCodeBits<Codes>), kTilePages, kStages> stream_;
  WarpAttention<Codes, D, kTilePages> attention_;
  int row_;
  DecodePlan::Page next_;   // the lane's of the kFound tiles that are put next
  DecodePlan::Page ahead_;  // of the kFound tiles after them
};

/// The runs of a block's warps, the block being number `block` of those that have runs. memory:
/// dynamic shared memory, kDecodeWarps * decode_warp_bytes().
template <class Codes, int D, class Queries>
__device__ void attend_runs(const DecodeArguments& arguments, const Queries& queries, int block,
                            std::byte* memory) {
  constexpr int kBits = kCodeBits<Codes>;
  __shared__ StageState<tile_pages(D)> states[kDecodeWarps][decode_stages(D, kBits)];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  RunAttention<Codes, D, Queries>(arguments, queries, block * kDecodeWarps + warp,
                                  memory + warp * decode_warp_bytes(D, kBits, arguments.group),
                                  states[warp])
      .run();
}

}  // namespace winnow::ops::cuda
