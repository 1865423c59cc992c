// How a block of linear_rows is laid out: its warps, its shared memory, its share of the work.
#pragma once

#include "ops/cuda/linear_rows_kernels.h"
#include "ops/cuda/mbarrier.cuh"
#include "ops/cuda/weight_codes.cuh"

namespace winnow::ops::cuda {

// Warps by what they do, in this order. Registers are shared by 16 warps: 128 for each thread.
inline constexpr int kProductWarps = 8;
inline constexpr int kOutputWarps = 4;
inline constexpr int kInputWarps = 3;
inline constexpr int kRowsThreads = 32 * (kProductWarps + kOutputWarps + kInputWarps + 1);

// Named barriers.
inline constexpr int kOutputBarrier = 1;
inline constexpr int kProductBarrier = 2;
inline constexpr int kFirstFreeBarrier = 3;

inline constexpr int kMostStages = 14;
inline constexpr int kMostInputSlots = 24;

/// Weights on their way at a time: enough to keep the memory busy, no more, because everything else
/// waits behind them.
inline constexpr int kBytesOnTheWay = 64 * 1024;

/// What is fetched at a time: 16 steps of a tile, two for each product warp, and the same columns
/// of the inputs. Rows of inputs lie such that eight lanes that read four times 16 bytes of two
/// rows meet all banks.
template <class Format>
struct RowsChunk {
  static constexpr int kSteps = 16;
  static constexpr int kColumns = kSteps * Format::kBlocks * kBlockColumns;
  static constexpr int kStageBytes = kSteps * kTileStepBytes<Format>;
  static constexpr int kInputPitch = 2 * kColumns + 64;
  static constexpr int kOnTheWay = kBytesOnTheWay / kStageBytes;

  /// Chunks of a row of so many steps.
  static __host__ __device__ constexpr int count(int steps) {
    return (steps + kSteps - 1) / kSteps;
  }
};

/// Shared memory of fixed size; the stages of weights and the slots of inputs follow.
template <int kBatches>
struct RowsShared {
  static constexpr int kSums = 128 * kBatches;  // of a tile: [8 batch rows][lane][4] accumulators

  float sums[2][kProductWarps][kSums];
  float norms[kMostLinearRows];
  std::uint64_t parts[kOutputWarps][kMostLinearRows];
  Barrier full[kMostStages];
  Barrier empty[kMostStages];
  Barrier inputs_full[kMostInputSlots];
  Barrier inputs_empty[kMostInputSlots];
  Barrier sums_full[2];
  Barrier sums_empty[2];
  Barrier inputs_ready;  // its phase n ends once all that comes before layer n is done
};

/// The rings of a block: how many places each has, and where. A place must be used by one fetching
/// warp and always by the same ones of the others: a barrier tells phases apart by parity only.
struct RowsRings {
  int stages;
  int input_slots;
  std::byte* weights;
  std::byte* inputs;
};

/// A layer as a block sees it. It is read at once, before anything of it is waited for.
template <class Format>
class LayerShare {
 public:
  using Chunk = RowsChunk<Format>;

  RowsLayer layer;
  int number = 0;
  int first;      // tile of this block
  int tiles;      // in all
  int step;       // from tile to tile
  int chunks;     // of a weight row
  bool resident;  // inputs stay for all tiles

  __device__ LayerShare(const RowsProgram& program, int input_slots)
      : step(program.blocks), program_(program), input_slots_(input_slots) {
    see();
  }
  /// Goes on to the layer after it, if there is one.
  __device__ bool next() {
    if (number + 1 == program_.count) {
      return false;
    }
    first_block_ = (first_block_ + tiles) % step;
    ++number;
    see();
    return true;
  }
  /// Steps of a chunk: all, or what is left.
  __device__ int steps(int chunk) const {
    return min(steps_ - chunk * Chunk::kSteps, Chunk::kSteps);
  }
  /// Number of row r of a tile among the rows (pairs of rows): there is one if it is below limit().
  __device__ int index(int tile, int r) const {
    return layer.linear.weight.paired ? tile * 8 + r % 8 : tile * kTileRows + r;
  }
  __device__ int limit() const {
    return layer.linear.weight.paired ? layer.linear.weight.rows / 2 : layer.linear.weight.rows;
  }
  /// Its row of the matrix.
  __device__ int row(int tile, int r) const {
    return index(tile, r) + (layer.linear.weight.paired && r >= 8 ? limit() : 0);
  }

 private:
  __device__ void see() {
    layer = (program_.layers == nullptr ? program_.own : program_.layers)[number];
    tiles = layer.linear.weight.tiles;
    steps_ = layer.linear.weight.steps;
    chunks = Chunk::count(steps_);
    resident = chunks <= input_slots_;
    first = static_cast<int>(blockIdx.x) - first_block_;
    first += first < 0 ? step : 0;
  }

  const RowsProgram& program_;
  int input_slots_;
  int first_block_ = 0;
  int steps_;
};

}  // namespace winnow::ops::cuda
