// The products of a tile with blocks of entries in shared memory, by mma.sync: a block of eight
// warps takes 64 places of the tile's list at a time. A warp has 16 query rows; where the tile has
// few rows, several warps have the same ones and divide the places among them.
#pragma once

#include "ops/cuda/prefill/prefill_tile.cuh"

namespace winnow::ops::cuda {

inline constexpr int kTileWarps = 8;
static_assert(16 * kTileWarps == kLeastTileRows);

template <int D>
inline constexpr int kPartBytes = kSlabs<D>* kTileBlock* kSlabBytes;  // keys of a block, or values
/// Two stages of keys and values.
template <int D>
inline constexpr int kSharedBytes = 4 * kPartBytes<D>;

/// Blocks of threads that fit on a multiprocessor: registers limit them.
constexpr int resident_blocks(int head_dim) {
  return head_dim == 64 ? 2 : 1;
}

template <int D>
__device__ std::byte* stage_of(std::byte* memory, int block) {
  return memory + block % 2 * (2 * kPartBytes<D>);
}

/// The offset of chunk c of a row of a block.
__device__ inline int chunk_offset(int row, int c) {
  return c / 8 * (kTileBlock * kSlabBytes) + row * kSlabBytes + (c % 8 ^ row % 8) * 16;
}

template <class Pair, int D>
__device__ void load_queries(const PrefillArguments& arguments, const QueryRow (&rows)[2],
                             std::uint32_t (&query)[D / 16][4]) {
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bf16* from =
          arguments.chunk.query + rows[i % 2].offset + 16 * step + i / 2 * 8 + threadIdx.x % 4 * 2;
      query[step][i] = from_bf16<Pair>(*reinterpret_cast<const std::uint32_t*>(from));
    }
  }
}

/// scores = queries x keys of kPlaces neighbouring places.
template <class Pair, int D, int kPlaces>
__device__ void score(const std::uint32_t (&query)[D / 16][4], const std::byte* keys,
                      float (&scores)[kPlaces / 2]) {
  const int lane = threadIdx.x % 32;
  float(&tiles)[kPlaces / 8][4] = reinterpret_cast<float(&)[kPlaces / 8][4]>(scores);
#pragma unroll
  for (float& x : scores) {
    x = 0.0F;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
#pragma unroll
    for (int t = 0; t < kPlaces / 8; t += 2) {
      std::uint32_t b[4];
      load_matrices<false>(
          b, keys + chunk_offset(8 * t + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
      multiply<Pair>(tiles[t], query[step], b[0], b[1]);
      multiply<Pair>(tiles[t + 1], query[step], b[2], b[3]);
    }
  }
}

/// out += weights x values of kPlaces neighbouring places.
template <class Pair, int D, int kPlaces>
__device__ void accumulate(const float (&weights)[kPlaces / 2], const std::byte* values,
                           float (&out)[D / 2]) {
  const int lane = threadIdx.x % 32;
  float(&tiles)[D / 8][4] = reinterpret_cast<float(&)[D / 8][4]>(out);
  std::uint32_t operands[kPlaces / 4];
  to_operands<Pair>(weights, operands);
#pragma unroll
  for (int step = 0; step < kPlaces / 16; ++step) {
    const auto& operand = reinterpret_cast<const std::uint32_t(&)[4]>(operands[4 * step]);
#pragma unroll
    for (int t = 0; t < D / 8; t += 2) {
      std::uint32_t b[4];
      load_matrices<true>(
          b, values + chunk_offset(16 * step + lane / 8 % 2 * 8 + lane % 8, t + lane / 16));
      multiply<Pair>(tiles[t], operand, b[0], b[1]);
      multiply<Pair>(tiles[t + 1], operand, b[2], b[3]);
    }
  }
}

/// A warp's attention of 16 rows of a tile to its share of each block: the kShares warps of the
/// same rows divide the places among them.
template <class Pair, int D, int kShares = 1>
class TileRows {
 public:
  /// Rows that the warps of a block have together.
  static constexpr int kRows = 16 * kTileWarps / kShares;

  __device__ TileRows(const PrefillArguments& arguments, const PrefillTile& tile)
      : arguments_(arguments),
        tile_(tile),
        first_(warp() / kShares * 16 + static_cast<int>(threadIdx.x) % 32 / 4),
        rows_{{arguments, tile, first_, D}, {arguments, tile, first_ + 8, D}},
        visible_{{arguments, tile, rows_[0].token}, {arguments, tile, rows_[1].token}} {
    load_queries<Pair, D>(arguments, rows_, query_);
  }

  /// Whether the tile has any of the warp's rows.
  __device__ bool exist() const { return warp() / kShares * 16 < tile_.tokens * arguments_.group; }

  /// Attends to the warp's share of the places [place, place + kTileBlock), which are in `stage`.
  __device__ void attend(const std::byte* stage, int place) {
    place += share() * kPlaces;
    stage += share() * (kPlaces * kSlabBytes);
    float scores[kPlaces / 2];
    score<Pair, D, kPlaces>(query_, stage, scores);
    if (!all_see(arguments_, tile_, place, kPlaces)) {
      mask(scores,
           {columns_seen<kPlaces>(visible_[0], place), columns_seen<kPlaces>(visible_[1], place)});
    }
    float factor[2];
    if (softmax_.weigh(scores, arguments_.scale, factor)) {
      multiply_rows(out_, factor);
    }
    accumulate<Pair, D, kPlaces>(scores, stage + kPartBytes<D>, out_);
  }

  /// Adds up the shares of the rows through `memory` [kSharedBytes], which overwrites the stages.
  /// All threads of the block must call it. Returns true to the warps that hold the sums of rows
  /// that exist.
  __device__ bool add_shares(std::byte* memory) {
    if constexpr (kShares > 1) {
      constexpr int kOthers = (kShares - 1) * kShareFloats;  // of the same rows
      static_assert(kTileWarps / kShares * kOthers * sizeof(float) <= kSharedBytes<D>);
      float* const shares =
          reinterpret_cast<float*>(memory) + warp() / kShares * kOthers + threadIdx.x % 32;
      __syncthreads();
      if (share() > 0) {
        put_share(shares + (share() - 1) * kShareFloats);
      }
      __syncthreads();
      if (share() > 0) {
        return false;
      }
#pragma unroll 1
      for (int other = 1; other < kShares; ++other) {
        add_share(shares + (other - 1) * kShareFloats);
      }
    }
    return exist();
  }

  __device__ void store() const {
    float factor[2];
    softmax_.reciprocals(factor);
    bf16* const target = arguments_.chunk.out;
    store_rows<D>(out_, factor, {target + rows_[0].offset, target + rows_[1].offset});
  }

  /// Stores what these places contribute, in float: outputs and SplitParts::softmax.
  __device__ void store_part(const SplitParts& to, int item) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float sums[2];
    softmax_.sums(sums);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_ + 8 * i;
      if (row < tile_.tokens * arguments_.group) {
        const std::size_t at = std::size_t(item) * kLeastTileRows + row;
        if (lane % 4 == 0) {
          to.softmax[at] = {softmax_.largest[i], sums[i]};
        }
#pragma unroll
        for (int t = 0; t < D / 8; ++t) {
          *reinterpret_cast<float2*>(to.out + at * D + 8 * t + lane % 4 * 2) = {
              out_[4 * t + 2 * i], out_[4 * t + 2 * i + 1]};
        }
      }
    }
  }

 private:
  static constexpr int kPlaces = kTileBlock / kShares;
  // A warp's outputs, largest scores and sums of weights: a lane's i-th is at 32 i + lane.
  static constexpr int kShareFloats = (D / 2 + 4) * 32;

  __device__ static int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  // Neighbouring warps share rows, so that the schedulers get equal work.
  __device__ static int share() {
    return warp() % kShares;
  }

  __device__ void put_share(float* to) const {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) {
      to[32 * i] = out_[i];
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      to[32 * (D / 2 + row)] = softmax_.largest[row];
      to[32 * (D / 2 + 2 + row)] = softmax_.sum[row];
    }
  }

  __device__ void add_share(const float* from) {
    float own[2];
    float other[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float largest = from[32 * (D / 2 + row)];
      const float most = fmaxf(softmax_.largest[row], largest);
      const float base = most == -INFINITY ? 0.0F : most;
      own[row] = exp2_of((softmax_.largest[row] - base) * arguments_.scale);
      other[row] = exp2_of((largest - base) * arguments_.scale);
      softmax_.largest[row] = most;
      softmax_.sum[row] = own[row] * softmax_.sum[row] + other[row] * from[32 * (D / 2 + 2 + row)];
    }
#pragma unroll
    for (int i = 0; i < D / 2; ++i) {
      out_[i] = own[i / 2 % 2] * out_[i] + other[i / 2 % 2] * from[32 * i];
    }
  }

  const PrefillArguments& arguments_;
  const PrefillTile& tile_;
  int first_;  // of the lane's two rows in the tile
  QueryRow rows_[2];
  VisiblePlaces visible_[2];
  std::uint32_t query_[D / 16][4];
  float out_[D / 2] = {};
  SoftmaxRows softmax_;
};

}  // namespace winnow::ops::cuda
