// The structure of a block of the skinny GEMM kernel: its warps, its shared memory, its share of
// the work.
#pragma once

#include "ops/cuda/linear/skinny_gemm_kernels.h"
#include "ops/cuda/linear/weight_codes.cuh"
#include "ops/cuda/mbarrier.cuh"

namespace winnow::ops::cuda {

// Warps by role, in this order. 16 warps share the registers: 128 per thread.
inline constexpr int kTeams = 2;  // they take alternate chunks
inline constexpr int kTeamWarps = 4;
inline constexpr int kProductWarps = kTeams * kTeamWarps;
inline constexpr int kEpilogueWarps = 4;
inline constexpr int kInputWarps = 3;
inline constexpr int kSkinnyThreads = 32 * (kProductWarps + kEpilogueWarps + kInputWarps + 1);

// Numbers of named barriers.
inline constexpr int kEpilogueBarrier = 1;
inline constexpr int kAttentionBarrier = 2;  // for the product warps
inline constexpr int kAppendBarrier = 3;     // for the input warps

inline constexpr int kMostStepsAtOnce = 4;  // of a chunk, per warp
inline constexpr int kMostStages = 16;
inline constexpr int kMostTilesTogether = 512;  // of a layer; with more, teams have their own tiles
inline constexpr int kMostChunksApart = 4;      // of such a tile
inline constexpr int kMostInputSlots = 24;

/// Weights in flight at a time: enough to keep the memory busy, no more, because all other accesses
/// queue after them.
inline constexpr int kBytesOnTheWay = 64 * 1024;

/// The unit of fetching: some steps of a tile, and the same columns of the inputs. The padding
/// between two rows of inputs holds IntegerProducts' scales.
template <class Format>
struct SkinnyChunk {
  static constexpr int kSteps = Format::kFormat == DeviceWeightFormat::int4 ? 8 : 16;
  static constexpr int kColumns = kSteps * Format::kBlocks * kBlockColumns;
  static constexpr int kStageBytes = kSteps * kTileStepBytes<Format>;
  static constexpr int kInputPitch = chunk_pitch(Format::kFormat);
  static_assert(kColumns == chunk_columns(Format::kFormat));

  /// The number of chunks of a row with `steps` steps, the same for each team.
  static __host__ __device__ constexpr int count(int steps) {
    return (steps + kTeams * kSteps - 1) / (kTeams * kSteps) * kTeams;
  }
  /// Whether each team has its own tiles. With many tiles whose chunks are all whole, this halves
  /// the work that is done once per tile; otherwise both teams finish a tile sooner together. Only
  /// for one row of int4: other formats do not gain, and their rows keep the same bits whatever the
  /// number of rows.
  static __host__ __device__ bool apart(int rows, const DeviceWeightView& weight) {
    const int chunks = count(weight.steps);
    return rows == 1 && Format::kFormat == DeviceWeightFormat::int4 &&
           weight.tiles > kMostTilesTogether && chunks <= kMostChunksApart &&
           chunks * kSteps == weight.steps;
  }
};

/// The row counts that kernels are compiled for: a kernel supports at most this many rows.
template <int kMostRows>
struct SkinnyRows {
  static constexpr int kBatches = (kMostRows + 7) / 8;
  /// Warps that finish a tile: with one row, each warp has its own tiles.
  static constexpr int kTileWarps = kMostRows == 1 ? 1 : kEpilogueWarps;
  /// The largest number of tiles that wait to be finished or are being finished.
  static constexpr int kSumSlots = kMostRows == 1 ? 6 : 3;
};

/// int4 with one row is multiplied in integers.
template <class Format, int kMostRows>
inline constexpr bool kInIntegers = kMostRows == 1 && Format::kFormat == DeviceWeightFormat::int4;
/// One row in other formats is converted to the format's units by the warps that fetch it.
template <class Format, int kMostRows>
inline constexpr bool kPrepared = kMostRows == 1 && !kInIntegers<Format, kMostRows>;
/// Chunks per copy, into adjacent stages, signalled on the first stage's barrier. Where products
/// are this fast, the cost of issuing more copies would delay them.
template <class Format, int kMostRows>
inline constexpr int kChunksTogether = kInIntegers<Format, kMostRows> ? kTeams : 1;
/// The factor for sums of products.
template <class Format, int kMostRows>
inline constexpr float kSumUnit = kInIntegers<Format, kMostRows> ? 1.0F : Format::kUnit;

/// Shared memory of fixed size; the stages of weights and the slots of inputs follow.
template <int kMostRows>
struct SkinnyShared {
  // A warp's sums of a tile: [batches of 8 rows][lane][4] accumulators; with one row [16], in
  // integers [16][4].
  static constexpr int kSums = kMostRows == 1 ? 64 : 128 * SkinnyRows<kMostRows>::kBatches;
  static constexpr int kSumSlots = SkinnyRows<kMostRows>::kSumSlots;

  float sums[kSumSlots][kProductWarps][kSums];
  float norms[kMostSkinnyRows];
  std::uint64_t parts[kEpilogueWarps][kMostSkinnyRows];
  Barrier full[kMostStages];  // of the first stage of a copy (kChunksTogether)
  Barrier empty[kMostStages];
  Barrier inputs_full[kMostInputSlots];
  Barrier inputs_landed[kMostRows > 1 ? kMostInputSlots : 1];  // a copy of PublishedChunks
  Barrier inputs_empty[kMostInputSlots];
  Barrier sums_full[kSumSlots];
  Barrier sums_empty[kSumSlots];
  Barrier appended;  // where there is attention
};

/// A block's rings: their sizes and offsets. A barrier distinguishes phases only by
/// parity, so no warp may wait for a phase before the previous one has ended. Each input slot
/// therefore has one fetching warp and one team, and both numbers are multiples of kTeams. If teams
/// are apart, a stage of weights may belong to the other team one lap later: then the copies in
/// flight plus a tile after them must be less than a lap (WeightFetch).
struct SkinnyRings {
  int stages;
  int input_slots;
  bool apart;  // may_be_apart()
  std::byte* weights;
  std::byte* inputs;
};

/// A layer as a block sees it.
template <class Format>
class LayerShare {
 public:
  using Chunk = SkinnyChunk<Format>;

  SkinnyGemm layer;
  int number;
  int tiles;      // in all
  int first;      // the block's first tile
  int step;       // from tile to tile
  int chunks;     // of a weight row
  bool apart;     // each team has tiles of its own
  int places;     // slots that the inputs use
  bool resident;  // inputs stay in shared memory for all tiles

  /// The layer before it ended just before a tile of block `next_block`.
  template <class Program>
  __device__ LayerShare(const Program& program, const SkinnyRings& rings, int number = 0,
                        int next_block = 0)
      : layer(program.layers[number]),
        number(number),
        tiles(layer.linear.weight.tiles),
        step(program.blocks),
        chunks(Chunk::count(layer.linear.weight.steps)),
        apart(rings.apart && Chunk::apart(program.rows, layer.linear.weight) &&
              kTeams * chunks <= rings.input_slots),
        places(apart ? kTeams * chunks : chunks),
        resident(places <= rings.input_slots),
        first_block_(layer.epilogue == SkinnyGemm::Epilogue::residual ? 0 : next_block) {
    first = static_cast<int>(blockIdx.x) - first_block_;
    first += first < 0 ? step : 0;
  }

  /// Advances to the next layer, if there is one.
  template <class Program>
  __device__ bool next(const Program& program, const SkinnyRings& rings) {
    if (number + 1 == program.count) {
      return false;
    }
    *this = LayerShare(program, rings, number + 1, next_block());
    return true;
  }
  /// The chunk of a row whose inputs are in a place.
  __device__ int chunk_at(int place) const { return apart ? place / kTeams : place; }
  /// The block of the tile after the last one.
  __device__ int next_block() const { return (first_block_ + tiles) % step; }
  /// Steps in `chunks` chunks from `chunk` on; not positive if they are only padding.
  /// (If it is clamped at 0, ptxas 13.0 miscompiles a later check for whole chunks: it takes
  /// partial ones for whole ones.)
  __device__ int steps(int chunk, int chunks = 1) const {
    return min(layer.linear.weight.steps - chunk * Chunk::kSteps, chunks * Chunk::kSteps);
  }
  /// The index of row r of a tile among the rows (pairs of rows); it exists if it is below limit().
  __device__ int index(int tile, int r) const {
    return layer.linear.weight.paired ? tile * 8 + r % 8 : tile * kTileRows + r;
  }
  __device__ int limit() const {
    return layer.linear.weight.paired ? layer.linear.weight.rows / 2 : layer.linear.weight.rows;
  }
  /// Its row in the matrix.
  __device__ int row(int tile, int r) const {
    return index(tile, r) + (layer.linear.weight.paired && r >= 8 ? limit() : 0);
  }

 private:
  int first_block_;
};

}  // namespace winnow::ops::cuda
