// A tile of prefill attention: what its queries are, what they see, and the softmax of a block of
// scores as the matrix instructions lay it out.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "ops/cuda/kv_codes.cuh"
#include "ops/cuda/prefill_attention_kernels.h"

namespace winnow::ops::cuda {

/// The query rows of a tile are `tokens` consecutive tokens with all query heads of one KV head,
/// row r = token r / group, head r % group. What any of them sees is a list of gathered rows: the
/// archive's first `archive`, then the band's from `band` on; both are multiples of 8, so that any
/// 8 neighbours in the list are neighbours in memory.
struct PrefillTile {
  int head;
  int first;   // token
  int tokens;  // of the tile, the last one's may be fewer
  int archive;
  int archive_least;  // what the first token sees of the archive
  int band;
  int length;

  PrefillTile() = default;
  /// Tile `index`, in no order of interest.
  __device__ PrefillTile(const PrefillArguments& arguments, int index) {
    const PrefillChunk& chunk = arguments.chunk;
    const int each = arguments.tile_tokens;
    head = index % arguments.kv_heads;
    first = index / arguments.kv_heads * each;
    tokens = min(each, chunk.tokens - first);
    const std::int32_t* counts = chunk.archive_counts + std::size_t(head) * chunk.tokens + first;
    archive_least = __ldg(counts);
    archive = (__ldg(counts + tokens - 1) + 7) / 8 * 8;
    band = max(0, chunk.lead + first - chunk.window) / 8 * 8;
    length = archive + chunk.lead + first + tokens - band;
  }

  /// Where in the list an entry of the band is.
  __device__ int band_place(int entry) const { return archive + entry - band; }
  /// The gathered row at a place of the list.
  __device__ int row_at(int place, const GatheredRows& rows) const {
    return place < archive ? place : rows.archive_rows + band + place - archive;
  }
};

/// The places of a tile's list that a token sees: [0, archive) and [first, last].
struct VisiblePlaces {
  int archive;
  int first;
  int last;

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

/// A block's scores [rows, N] lie in the lanes as those of mma.m16n8 and wgmma do: lane 4 r + c
/// holds of rows r and r + 8 columns 8 i + 2 c and the next. Bits 2 i and 2 i + 1 say which of a
/// row's columns are below `end`.
template <int N>
__device__ std::uint32_t columns_below(int end) {
  const int from_first = min(max(end - static_cast<int>(threadIdx.x) % 4 * 2, 0), N);
  const int count = from_first / 8 * 2 + min(from_first % 8, 2);
  return count == 32 ? ~0U : (1U << count) - 1;
}

template <int N>
__device__ std::uint32_t columns_seen(const VisiblePlaces& visible, int place) {
  return columns_below<N>(visible.archive - place) |
         (columns_below<N>(visible.last + 1 - place) & ~columns_below<N>(visible.first - place));
}

/// Scores of what is not seen become -infinity.
template <int Scores>
__device__ void mask(float (&scores)[Scores], const std::uint32_t (&seen)[2]) {
#pragma unroll
  for (int i = 0; i < Scores; ++i) {
    const int column = i / 4 * 2 + i % 2;
    scores[i] = (seen[i / 2 % 2] >> column & 1U) != 0 ? scores[i] : -INFINITY;
  }
}

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The running softmax of a lane's two rows.
struct SoftmaxRows {
  float largest[2] = {-INFINITY, -INFINITY};  // score that weights are relative to
  float sum[2] = {0.0F, 0.0F};                // of the lane's own columns

  /// Turns scores into weights exp2(scale (score - largest)) and adds them up. True where earlier
  /// weights, in the sums and outputs of the caller's, must be multiplied by `factor` first. A
  /// largest score that is outgrown a little is kept: weights up to 2^8 do no harm.
  template <int Scores>
  __device__ __forceinline__ bool weigh(float (&scores)[Scores], float scale, float (&factor)[2]) {
    constexpr float kHarmless = 8.0F;
    // Four chains of maxima and four of sums: one would wait for itself.
    float of_columns[4] = {largest[0], largest[0], largest[1], largest[1]};
#pragma unroll
    for (int i = 0; i < Scores; ++i) {
      of_columns[i % 4] = fmaxf(of_columns[i % 4], scores[i]);
    }
    float most[2] = {fmaxf(of_columns[0], of_columns[1]), fmaxf(of_columns[2], of_columns[3])};
    bool grown = false;
    float base[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      most[row] = fmaxf(most[row], __shfl_xor_sync(0xFFFFFFFFU, most[row], 1));
      most[row] = fmaxf(most[row], __shfl_xor_sync(0xFFFFFFFFU, most[row], 2));
      const bool more = (most[row] - largest[row]) * scale > kHarmless;
      const float shrunk = exp2_of((largest[row] - most[row]) * scale);
      factor[row] = more ? shrunk : 1.0F;
      largest[row] = more ? most[row] : largest[row];
      grown = grown || more;
      sum[row] *= factor[row];
      base[row] = largest[row] == -INFINITY ? 0.0F : largest[row] * scale;
    }
    float sums[4] = {sum[0], 0.0F, sum[1], 0.0F};
#pragma unroll
    for (int i = 0; i < Scores; ++i) {
      scores[i] = exp2_of(scores[i] * scale - base[i / 2 % 2]);
      sums[i % 4] += scores[i];
    }
    sum[0] = sums[0] + sums[1];
    sum[1] = sums[2] + sums[3];
    return __any_sync(0xFFFFFFFFU, grown);
  }

  /// One over the sums of whole rows.
  __device__ void reciprocals(float (&result)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float total = sum[row] + __shfl_xor_sync(0xFFFFFFFFU, sum[row], 1);
      total += __shfl_xor_sync(0xFFFFFFFFU, total, 2);
      result[row] = 1.0F / total;
    }
  }
};

template <int Values>
__device__ void multiply_rows(float (&out)[Values], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < Values; ++i) {
    out[i] *= factor[i / 2 % 2];
  }
}

template <class Pair>
__device__ std::uint32_t round_pair(float a, float b) {
  if constexpr (std::is_same_v<Pair, __half2>) {
    return bits_of(__floats2half2_rn(a, b));
  } else {
    return bits_of(__floats2bfloat162_rn(a, b));
  }
}

/// Two bf16 numbers as a Pair's.
template <class Pair>
__device__ std::uint32_t from_bf16(std::uint32_t bits) {
  if constexpr (std::is_same_v<Pair, __half2>) {
    return round_pair<Pair>(__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000U));
  } else {
    return bits;
  }
}

/// The weights [rows, N] as left operands of N / 16 products: entry i of `operand` serves the
/// product over columns 16 (i / 4) and on.
template <class Pair, int Scores>
__device__ void to_operands(const float (&weights)[Scores], std::uint32_t (&operand)[Scores / 2]) {
#pragma unroll
  for (int i = 0; i < Scores / 2; ++i) {
    operand[i] = round_pair<Pair>(weights[2 * i], weights[2 * i + 1]);
  }
}

/// A tile's row as the caller's arrays hold it. Rows too many repeat the last one, result included.
struct QueryRow {
  int token;
  std::size_t offset;  // of its first channel in query and out

  __device__ QueryRow(const PrefillArguments& arguments, const PrefillTile& tile, int row,
                      int head_dim) {
    const int group = arguments.group;
    row = min(row, tile.tokens * group - 1);
    token = tile.first + row / group;
    offset = (std::size_t(token) * arguments.kv_heads * group + tile.head * group + row % group) *
             head_dim;
  }
};

/// Writes a lane's outputs [2 rows, D], `out` times `factor`. Neighbouring lanes swap halves, so
/// that four of them write 32 bytes side by side.
template <int D>
__device__ __forceinline__ void store_rows(const float (&out)[D / 2], const float (&factor)[2],
                                           const QueryRow (&rows)[2], bf16* target) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int i = 0; i < D / 8; i += 2) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const auto pair_of = [&](int tile) {
        const float* x = out + 4 * tile + 2 * row;
        return round_pair<__nv_bfloat162>(x[0] * factor[row], x[1] * factor[row]);
      };
      const std::uint32_t even_tile = pair_of(i);
      const std::uint32_t odd_tile = pair_of(i + 1);
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFU, odd ? even_tile : odd_tile, 1);
      const uint2 both = odd ? uint2{other, odd_tile} : uint2{even_tile, other};
      const int channel = 8 * (i + lane % 2) + lane % 4 / 2 * 4;
      *reinterpret_cast<uint2*>(target + rows[row].offset + channel) = both;
    }
  }
}

}  // namespace winnow::ops::cuda
