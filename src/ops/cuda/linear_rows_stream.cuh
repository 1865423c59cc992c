// The weights of a warp on their way through shared memory.
#pragma once

#include <cuda_pipeline.h>

#include "ops/cuda/dependent_launch.cuh"
#include "ops/cuda/linear_rows_kernels.h"
#include "ops/cuda/weight_codes.cuh"

namespace winnow::ops::cuda {

inline constexpr int kRowsWarps = 8;
inline constexpr int kRowsThreads = 32 * kRowsWarps;

/// Shared memory of a block's weights on their way: two blocks, of kernels that follow one another,
/// fit on a multiprocessor, and what is on its way covers the latency of memory several times.
inline constexpr int kRingBytes = 96 * 1024;

/// Where the rows of a tile come from. Plainly one after another; in pairs, 8 of the upper half of
/// the matrix and the 8 that belong to them of the lower half, which one lane then has both of.
struct TileRows {
  int per_tile;  // rows (pairs of rows) per tile
  int limit;     // rows (pairs) in all
  int upper;     // what rows 8 to 15 of 16 are ahead of rows 0 to 7 in rows (pairs): 8 or 0
  int partner;   // and in rows of the matrix
  int sixteen;   // what rows 16 to 31 are ahead of rows 0 to 15

  __device__ TileRows(const RowsArguments& arguments) {
    const bool paired = arguments.epilogue == RowsEpilogue::silu;
    const int rows = arguments.weight.rows;
    per_tile = paired ? arguments.tiling.rows / 2 : arguments.tiling.rows;
    limit = paired ? rows / 2 : rows;
    upper = paired ? 0 : 8;
    partner = paired ? rows / 2 : 8;
    sixteen = paired ? 8 : 16;
  }

  /// Number of row r of a tile among the rows (pairs): there is one if it is below `limit`.
  __device__ int index(int tile, int r) const {
    return tile * per_tile + r / 16 * sixteen + r / 8 % 2 * upper + r % 8;
  }
  /// Its row of the matrix.
  __device__ int row(int tile, int r) const {
    return tile * per_tile + r / 16 * sixteen + r / 8 % 2 * partner + r % 8;
  }
};

/// What a warp fetches at a time: a span of each row of a tile, and its scales.
template <class Format, int kRows>
struct RowsStage {
  static constexpr int kSpan = kStepBytes * Format::kSteps;
  static constexpr int kSpanColumns = kBlockColumns * Format::kBlocks * Format::kSteps;
  static constexpr int kScales = Format::kGroupScales ? kSpanColumns / kBlockColumns * 2 : 0;
  static constexpr int kBytes = kRows * (kSpan + kScales);
  static constexpr int kFit = kRingBytes / kRowsWarps / kBytes;
  static constexpr int kCount = kFit < 8 ? kFit : 8;

  /// Where the 16 bytes `piece` of row r lie: eight lanes that read four pieces each of two rows
  /// meet all banks.
  static __device__ int at(int r, int piece) {
    return r * kSpan + 16 * (kSpan == kStepBytes ? piece : piece ^ (r % 2 * 4));
  }
};

/// Warp w takes spans w, w + kRowsWarps, ... of each tile of the block, tile after tile, through a
/// ring of stages.
template <class Format, int kRows>
class WeightStream {
 public:
  using Stage = RowsStage<Format, kRows>;

  /// `memory`: Stage::kCount stages, this warp's own.
  __device__ WeightStream(const RowsArguments& arguments, std::byte* memory)
      : arguments_(arguments),
        rows_(arguments),
        memory_(memory),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        spans_((static_cast<int>(arguments.weight.row_codes) + Stage::kSpan - 1) / Stage::kSpan),
        tile_(warp_ < spans_ ? blockIdx.x : arguments.tiling.tiles),
        span_(warp_) {
    if (warp_ >= spans_) {
      let_next_kernel_begin();
    }
  }

  __device__ void fill() {
    for (int i = 0; i < Stage::kCount; ++i) {
      fetch();
    }
  }
  /// Spans of each tile.
  __device__ int count() const { return (spans_ - warp_ + kRowsWarps - 1) / kRowsWarps; }

  /// The next stage, once it is there.
  __device__ const std::byte* wait() const {
    __pipeline_wait_prior(Stage::kCount - 1);
    __syncwarp();
    return memory_ + stage_ * Stage::kBytes;
  }
  /// The stage has been read: fetches another one in its place.
  __device__ void release() {
    __syncwarp();
    fetch();
  }

 private:
  __device__ void fetch() {
    if (tile_ < arguments_.tiling.tiles) {
      copy(memory_ + stage_ * Stage::kBytes);
      span_ += kRowsWarps;
      if (span_ >= spans_) {
        span_ = warp_;
        tile_ += gridDim.x;
        // From here on the memory would have less and less to do.
        if (tile_ >= arguments_.tiling.tiles) {
          let_next_kernel_begin();
        }
      }
    }
    __pipeline_commit();
    stage_ = stage_ + 1 == Stage::kCount ? 0 : stage_ + 1;
  }

  __device__ void copy(std::byte* to) const {
    constexpr int kPieces = Stage::kSpan / 16;
    constexpr int kAtOnce = 32 / kPieces;  // rows
    const DeviceWeightView& weight = arguments_.weight;
    const int piece = lane_ % kPieces;
    const std::size_t column = static_cast<std::size_t>(span_) * Stage::kSpan + 16 * piece;
    const int own = lane_ / kPieces;
    const int limit = column < weight.row_codes ? rows_.limit : 0;
    const std::byte* from = weight.codes + column;
    to += Stage::at(own, piece);
#pragma unroll
    for (int r = 0; r < kRows; r += kAtOnce) {  // r % 8 + own < 8
      const bool inside = rows_.index(tile_, r) + own < limit;
      __pipeline_memcpy_async(to + r * Stage::kSpan,
                              from + (rows_.row(tile_, r) + own) * weight.row_codes, 16,
                              inside ? 0 : 16);
    }
    if constexpr (Format::kGroupScales) {
      if (lane_ < kRows) {
        const bool inside = rows_.index(tile_, lane_) < rows_.limit;
        __pipeline_memcpy_async(
            to - Stage::at(own, piece) + kRows * Stage::kSpan + lane_ * Stage::kScales,
            weight.scales + rows_.row(tile_, lane_) * weight.row_scales + span_ * Stage::kScales,
            Stage::kScales, inside ? 0 : Stage::kScales);
      }
    }
  }

  const RowsArguments& arguments_;
  TileRows rows_;
  std::byte* memory_;
  int lane_;
  int warp_;
  int spans_;
  int tile_;
  int span_;
  int stage_ = 0;
};

}  // namespace winnow::ops::cuda
