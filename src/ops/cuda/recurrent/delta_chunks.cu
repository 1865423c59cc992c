// Many tokens of each sequence, in order. A warp holds four columns of a head's matrix in
// registers, with eight lanes per column, and needs no other warp: per token, a lane computes the
// products of its rows, two sums over the eight lanes and the update (delta_step.cu has the
// equations). Blocks load the next tokens into shared memory while they process earlier ones.
#include <cuda_pipeline.h>

#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/recurrent/delta_rule_kernels.h"
#include "ops/cuda/recurrent/four.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kChunkWarps = 8;
constexpr int kChunkThreads = kChunkWarps * kLanes;
constexpr int kChunkColumns = 4 * kChunkWarps;  // per block
constexpr int kRowsOfGroup = 128;               // of keys: kernels take one group or two

// Some tokens of a head, in the layout that the block's warps read.
template <int kGroups>
struct TokenTile {
  static constexpr int kTokens = 16 / kGroups;
  static constexpr int kKeyDim = kGroups * kRowsOfGroup;  // padded with zeros after the head's
  float queries[kTokens][kKeyDim];
  float keys[kTokens][kKeyDim];
  float values[kTokens][kChunkColumns];
  float rates[kTokens];
  float decays[kTokens];
};

// A block's part of the work.
struct ChunkPlace {
  int head;
  int key_head;
  int column;   // its first column
  int columns;  // the number of its columns
};

// Starts to load `count` tokens from `row` on.
template <int kGroups>
__device__ void bring(const DeltaRuleShape& heads, const DeltaRule& rule, const ChunkPlace& place,
                      std::size_t row, int count, TokenTile<kGroups>& tile) {
  const std::size_t channels = channels_of(heads);
  const float* mixed = rule.mixed + row * channels;
  const int key_fours = heads.key_dim / 4;
  for (int i = threadIdx.x; i < count * key_fours; i += kChunkThreads) {
    const int t = i / key_fours;
    const int at = 4 * (i % key_fours);
    const float* query = mixed + t * channels + place.key_head * heads.key_dim + at;
    __pipeline_memcpy_async(&tile.queries[t][at], query, 16);
    __pipeline_memcpy_async(&tile.keys[t][at], query + keys_of(heads), 16);
  }
  const int value_fours = place.columns / 4;
  for (int i = threadIdx.x; i < count * value_fours; i += kChunkThreads) {
    const int t = i / value_fours;
    const int at = 4 * (i % value_fours);
    const float* value = mixed + t * channels + 2 * keys_of(heads) + place.head * heads.value_dim +
                         place.column + at;
    __pipeline_memcpy_async(&tile.values[t][at], value, 16);
  }
  if (static_cast<int>(threadIdx.x) < count) {
    const float* gates = rule.gates + (row + threadIdx.x) * rule.gate_stride;
    __pipeline_memcpy_async(&tile.rates[threadIdx.x], gates + place.head, 4);
    __pipeline_memcpy_async(&tile.decays[threadIdx.x], gates + heads.value_heads + place.head, 4);
  }
}

// A lane's rows of a column: four consecutive ones of each 32.
constexpr int kColumnLanes = 8;
constexpr int kRowsTogether = 4 * kColumnLanes;

// A lane's rows of column lane % 4 of its warp.
template <int kGroups>
struct ColumnRows {
  static constexpr int kFours = kGroups * kRowsOfGroup / kRowsTogether;
  float4 s[kFours];

  // The first of the i-th four rows.
  static __device__ int row(int i) {
    return i * kRowsTogether + 4 * (static_cast<int>(threadIdx.x) % kLanes / 4);
  }

  // Processes a token; lanes 16 to 19 return its outputs in columns 0 to 3. `skip`: the factor of
  // its values in them.
  __device__ float take(const TokenTile<kGroups>& tile, int t, int first_column, float match,
                        bool corrects, float skip) {
    const int lane = threadIdx.x % kLanes;
    float4 key[kFours];
    float m[2] = {};
    float n[2] = {};
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      key[i] = load_four(&tile.keys[t][row(i)]);
      m[i % 2] += dot(s[i], key[i]);
      n[i % 2] += dot(s[i], load_four(&tile.queries[t][row(i)]));
    }
    const float decay = tile.decays[t];
    // The lower lanes sum m, the upper ones n.
    const bool upper = lane >= 16;
    const float given = upper ? m[0] + m[1] : n[0] + n[1];
    float sum = (upper ? n[0] + n[1] : m[0] + m[1]) + __shfl_xor_sync(0xFFFFFFFFU, given, 16);
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 8);
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 4);
    const float recalled = decay * __shfl_sync(0xFFFFFFFFU, sum, lane % 4);
    const float value = tile.values[t][first_column + lane % 4];
    const float update = tile.rates[t] * (corrects ? value - recalled : value);
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      s[i] = s[i] * decay;
      add_scaled(s[i], key[i], update);
    }
    return decay * sum + match * update + skip * value;
  }
};

// k . q of a tile's tokens, a warp each in turn.
template <int kGroups>
__device__ void match_tokens(const TokenTile<kGroups>& tile, int count, float* matches) {
  const int lane = threadIdx.x % kLanes;
  for (int t = threadIdx.x / kLanes; t < count; t += kChunkWarps) {
    float match = 0.0F;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      match += dot(load_four(&tile.keys[t][g * kRowsOfGroup + 4 * lane]),
                   load_four(&tile.queries[t][g * kRowsOfGroup + 4 * lane]));
    }
    match = lane_sum(match);
    if (lane == 0) {
      matches[t] = match;
    }
  }
}

template <int kGroups>
__global__ void __launch_bounds__(kChunkThreads)
    delta_chunks_kernel(DeltaRuleShape heads, DeltaRule rule, RecurrentRows rows) {
  using Tile = TokenTile<kGroups>;
  __shared__ Tile tiles[2];
  __shared__ float matches[Tile::kTokens];
  winnow::cuda::wait_for_predecessor();
  const int slot = rows.slots[blockIdx.z];
  const auto [first, count] = rows.range(blockIdx.z);
  if (slot < 0 || count == 0) {
    return;
  }
  const int head = blockIdx.y;
  const int begin = blockIdx.x * kChunkColumns;
  const ChunkPlace place{.head = head,
                         .key_head = head / (heads.value_heads / heads.key_heads),
                         .column = begin,
                         .columns = min(kChunkColumns, heads.value_dim - begin)};
  for (int i = threadIdx.x; i < static_cast<int>(sizeof(tiles) / sizeof(float));
       i += kChunkThreads) {
    reinterpret_cast<float*>(tiles)[i] = 0.0F;
  }
  __syncthreads();
  const int own = 4 * (threadIdx.x / kLanes);  // the warp's first column in the block
  const bool has_columns = own < place.columns;
  float* state = rows.state(slot) + static_cast<std::size_t>(head) * matrix_of(heads) + begin + own;
  const int lane = threadIdx.x % kLanes;
  state += lane % 4;
  const auto has = [&](int row) { return has_columns && row < heads.key_dim; };  // and the next 3
  ColumnRows<kGroups> own_rows;
#pragma unroll
  for (int i = 0; i < own_rows.kFours; ++i) {
    const float* from = state + own_rows.row(i) * heads.value_dim;
    own_rows.s[i] = has(own_rows.row(i))
                        ? float4{from[0], from[heads.value_dim], from[2 * heads.value_dim],
                                 from[3 * heads.value_dim]}
                        : float4{};
  }
  float* out = rule.out + first * std::size_t(values_of(heads)) + head * heads.value_dim + begin +
               own + lane % 4;
  const bool writes = has_columns && lane / 4 == 4;
  const float skip = rule.skip != nullptr ? rule.skip[head] : 0.0F;

  const auto tokens_at = [&](int t) { return min(Tile::kTokens, count - t); };
  bring(heads, rule, place, first, tokens_at(0), tiles[0]);
  __pipeline_commit();
  for (int t = 0, at = 0; t < count; t += Tile::kTokens, at ^= 1) {
    if (t + Tile::kTokens < count) {
      bring(heads, rule, place, std::size_t(first) + t + Tile::kTokens,
            tokens_at(t + Tile::kTokens), tiles[at ^ 1]);
    }
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    match_tokens(tiles[at], tokens_at(t), matches);
    __syncthreads();
    for (int i = 0; i < tokens_at(t); ++i) {
      const float result = own_rows.take(tiles[at], i, own, matches[i], heads.corrects, skip);
      if (writes) {
        out[(std::size_t(t) + i) * values_of(heads)] = result;
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < own_rows.kFours; ++i) {
    if (has(own_rows.row(i))) {
      float* to = state + own_rows.row(i) * heads.value_dim;
      to[0] = own_rows.s[i].x;
      to[heads.value_dim] = own_rows.s[i].y;
      to[2 * heads.value_dim] = own_rows.s[i].z;
      to[3 * heads.value_dim] = own_rows.s[i].w;
    }
  }
}

}  // namespace

void launch_delta_chunks(const DeltaRuleShape& heads, const DeltaRule& rule,
                         const RecurrentRows& rows, cudaStream_t stream) {
  const dim3 grid((heads.value_dim + kChunkColumns - 1) / kChunkColumns, heads.value_heads,
                  rows.sequences);
  const auto launch = [&](auto* kernel) {
    winnow::cuda::launch(kernel, grid, kChunkThreads, 0, stream, true, heads, rule, rows);
  };
  heads.key_dim <= kRowsOfGroup ? launch(delta_chunks_kernel<1>) : launch(delta_chunks_kernel<2>);
}

}  // namespace winnow::ops::cuda
