// How a block of the skinny GEMM kernel is laid out: its warps, its shared memory, its share of the
// work.
#pragma once

#include "ops/cuda/linear/skinny_gemm_kernels.h"
#include "ops/cuda/linear/weight_codes.cuh"
#include "ops/cuda/mbarrier.cuh"

namespace winnow::ops::cuda {

// Warps by what they do, in this order. Registers are shared by 16 warps: 128 for each thread.
inline constexpr int kTeams = 2;  // which take alternate chunks
inline constexpr int kTeamWarps = 4;
inline constexpr int kProductWarps = kTeams * kTeamWarps;
inline constexpr int kEpilogueWarps = 4;
inline constexpr int kInputWarps = 3;
inline constexpr int kSkinnyThreads = 32 * (kProductWarps + kEpilogueWarps + kInputWarps + 1);

// Barriers by number.
inline constexpr int kEpilogueBarrier = 1;
inline constexpr int kAttentionBarrier = 2;  // of the products' warps
inline constexpr int kAppendBarrier = 3;     // of the inputs'

inline constexpr int kMostStepsAtOnce = 4;  // of a chunk, by a warp
inline constexpr int kMostStages = 16;
inline constexpr int kMostTilesTogether = 512;  // of a layer; teams have tiles of their own of more
inline constexpr int kMostChunksApart = 4;      // of such a tile
inline constexpr int kMostInputSlots = 24;

/// Weights on their way at a time: enough to keep the memory busy, no more, because everything else
/// waits behind them.
inline constexpr int kBytesOnTheWay = 64 * 1024;

/// What is fetched at a time: some steps of a tile, and the same columns of the inputs. What lies
/// between two rows of inputs is IntegerProducts' scales.
template <class Format>
struct SkinnyChunk {
  static constexpr int kSteps = Format::kFormat == DeviceWeightFormat::int4 ? 8 : 16;
  static constexpr int kColumns = kSteps * Format::kBlocks * kBlockColumns;
  static constexpr int kStageBytes = kSteps * kTileStepBytes<Format>;
  static constexpr int kInputPitch = chunk_pitch(Format::kFormat);
  static_assert(kColumns == chunk_columns(Format::kFormat));

  /// Chunks of a row of so many steps, the same for each team.
  static __host__ __device__ constexpr int count(int steps) {
    return (steps + kTeams * kSteps - 1) / (kTeams * kSteps) * kTeams;
  }
  /// Whether each team takes tiles of its own: where there are many, all of whose chunks are whole,
  /// what is done once for a tile is then done half as often; otherwise a tile is done sooner
  /// together. The other formats are not held up by it, and their rows keep their bits in any
  /// company.
  static __host__ __device__ bool apart(int rows, const DeviceWeightView& weight) {
    const int chunks = count(weight.steps);
    return rows == 1 && Format::kFormat == DeviceWeightFormat::int4 &&
           weight.tiles > kMostTilesTogether && chunks <= kMostChunksApart &&
           chunks * kSteps == weight.steps;
  }
};

/// Of how many rows kernels are made: all that there are at most.
template <int kMostRows>
struct SkinnyRows {
  static constexpr int kBatches = (kMostRows + 7) / 8;
  /// Warps that finish a tile: with one row each has tiles of its own.
  static constexpr int kTileWarps = kMostRows == 1 ? 1 : kEpilogueWarps;
  /// Tiles that may wait to be finished or are being.
  static constexpr int kSumSlots = kMostRows == 1 ? 6 : 3;
};

/// int4 and one row are multiplied in integers.
template <class Format, int kMostRows>
inline constexpr bool kInIntegers = kMostRows == 1 && Format::kFormat == DeviceWeightFormat::int4;
/// One row that is not is brought into the format's units by the warps that fetch it.
template <class Format, int kMostRows>
inline constexpr bool kPrepared = kMostRows == 1 && !kInIntegers<Format, kMostRows>;
/// Chunks that one copy brings to stages that lie together, on behalf of the first one's barrier.
/// Where products are that fast, what a copy costs the warp that asks for it would hold them up.
template <class Format, int kMostRows>
inline constexpr int kChunksTogether = kInIntegers<Format, kMostRows> ? kTeams : 1;
/// What sums of products must be multiplied by.
template <class Format, int kMostRows>
inline constexpr float kSumUnit = kInIntegers<Format, kMostRows> ? 1.0F : Format::kUnit;

/// Shared memory of fixed size; the stages of weights and the slots of inputs follow.
template <int kMostRows>
struct SkinnyShared {
  // What a warp has of a tile: [batches of 8 rows][lane][4] accumulators; of one row [16], in
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

/// The rings of a block: how many places each has, and where. A barrier distinguishes phases by
/// parity only: no warp may wait for a phase before the previous one has ended. Each input slot
/// therefore has one fetching warp and one team, and both numbers are multiples of kTeams. A stage
/// of weights may be the other team's a lap later, where teams are apart: then the copies that have
/// not landed and a tile behind them must be less than a lap (WeightFetch).
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
  int first;      // tile of this block
  int step;       // from tile to tile
  int chunks;     // of a weight row
  bool apart;     // each team has tiles of its own
  int places;     // that the inputs take
  bool resident;  // inputs stay for all tiles

  /// The layer before it ended with a tile of the block before `next_block`.
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

  /// Goes on to the layer after it, if there is one.
  template <class Program>
  __device__ bool next(const Program& program, const SkinnyRings& rings) {
    if (number + 1 == program.count) {
      return false;
    }
    *this = LayerShare(program, rings, number + 1, next_block());
    return true;
  }
  /// Of the chunks of a row, the one whose inputs are in a place.
  __device__ int chunk_at(int place) const { return apart ? place / kTeams : place; }
  /// The block with the tile behind the last one.
  __device__ int next_block() const { return (first_block_ + tiles) % step; }
  /// Steps in so many chunks from `chunk` on; not positive where there is but what is rounded up.
  /// (Clamped at 0, ptxas 13.0 takes the chunks that are not whole for whole ones where that is
  /// asked next.)
  __device__ int steps(int chunk, int chunks = 1) const {
    return min(layer.linear.weight.steps - chunk * Chunk::kSteps, chunks * Chunk::kSteps);
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
  int first_block_;
};

}  // namespace winnow::ops::cuda
