// General training attention, backward, in two kernels, so that no block adds to another block's
// output: query rows over their keys, and keys over the query rows that see them.
#include "base/cuda/launch.cuh"
#include "ops/cuda/block_sums.cuh"
#include "ops/cuda/general/training_attention.h"
#include "ops/cuda/general/training_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kRowWarps * 32;

/// A tile's data on each of its query rows.
struct QueryFacts {
  int token;
  int first_key;
  QuerySums sums;
};

// Both matrices of the block's rows [kRowsPerBlock][stride], the tile, and data on its entries:
// keys' biases or query rows' facts.
struct BackwardShared {
  float* rows;    // queries, or keys
  float* others;  // the gradients of the queries' outputs, or values
  EntryTile tile;
  float* biases;
  QueryFacts* facts;

  __device__ BackwardShared(float* memory, int head_dim)
      : rows(memory),
        others(memory + kRowsPerBlock * tile_stride(head_dim)),
        tile(memory + 2 * kRowsPerBlock * tile_stride(head_dim), head_dim),
        biases(tile.keys + EntryTile::floats(head_dim)),
        facts(reinterpret_cast<QueryFacts*>(biases + kEntryTile)) {}
  static int bytes(int head_dim) {
    const int floats =
        2 * kRowsPerBlock * tile_stride(head_dim) + EntryTile::floats(head_dim) + kEntryTile;
    return floats * static_cast<int>(sizeof(float)) +
           kEntryTile * static_cast<int>(sizeof(QueryFacts));
  }
};

// The weight of a key for a query, and the gradients of their score and their product.
struct PairGradient {
  float weight = 0.0F;
  float dscore = 0.0F;
  float dproduct = 0.0F;

  PairGradient() = default;
  __device__ PairGradient(const TrainingScores& scores, float product, float bias, float dweight,
                          const QuerySums& sums) {
    const float capped = scores.cap.natural(product);
    weight = exp2f(TrainingScores::in_powers_of_two(capped, bias) - sums.normalizer);
    dscore = weight * (dweight - sums.dot);
    dproduct = scores.dproduct(dscore, capped);
  }
};

template <int kSteps>
__device__ void store_row(bf16* to, const float (&x)[kSteps], int head_dim) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (const int d = static_cast<int>(threadIdx.x) % 32 + 32 * i; d < head_dim) {
      to[d] = to_bf16(x[i]);
    }
  }
}

template <int kSteps>
__global__ void __launch_bounds__(kThreads)
    dqueries_kernel(const __grid_constant__ TrainingBackward backward) {
  extern __shared__ __align__(16) float memory[];
  const TrainingAttention& attention = backward.attention;
  const int dim = attention.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int entry = static_cast<int>(threadIdx.x) % kEntryTile;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kRowsPerWarp;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRowsPerBlock;
  const QueryRows rows(attention, backward.tokens, kv_head);
  const TrainingScores scores(attention);
  const BackwardShared shared(memory, dim);
  load_rows(shared.rows, kRowsPerBlock, dim,
            [&](int row) { return rows.in(attention.queries, first + row, dim); });
  load_rows(shared.others, kRowsPerBlock, dim,
            [&](int row) { return rows.in(backward.dout, first + row, dim); });

  int query[kRowsPerWarp];
  int first_key[kRowsPerWarp];
  QuerySums sums[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int row = min(first + warp_row + r, rows.count - 1);
    query[r] = rows.token(row);
    first_key[r] = attention.first_key[query[r]];
    sums[r] =
        backward.sums[static_cast<std::size_t>(rows.head(row)) * backward.padded_tokens + query[r]];
  }
  const int first_query = rows.token(first);
  const int end = rows.token(min(first + kRowsPerBlock, rows.count) - 1) + 1;
  float dqueries[kRowsPerWarp][kSteps] = {};
  for (int key = scores.first_seen(first_query, attention.first_key[first_query]); key < end;
       key += kEntryTile) {
    __syncthreads();
    load_keys(attention, shared.tile, shared.biases, key, kv_head);
    __syncthreads();
    float products[kRowsPerWarp];
    float dweights[kRowsPerWarp];
    multiply_entries(shared.rows + warp_row * tile_stride(dim), shared.tile.keys, dim, products);
    multiply_entries(shared.others + warp_row * tile_stride(dim), shared.tile.values, dim,
                     dweights);
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      PairGradient pair;
      if (const int j = key + entry; scores.sees(query[r], first_key[r], j)) {
        pair = PairGradient(scores, products[r], scores.bias(query[r], j, shared.biases[entry]),
                            dweights[r], sums[r]);
      }
      products[r] = pair.dproduct;
    }
    add_weighted(products, shared.tile.keys, dim, dqueries);
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    if (const int row = first + warp_row + r; row < rows.count) {
      store_row(rows.in(backward.gradients.queries, row, dim), dqueries[r], dim);
    }
  }
}

// One past the last token that sees any of the keys up to `last`.
__device__ int end_of_queries(const TrainingBackward& backward, int last) {
  const TrainingAttention& attention = backward.attention;
  int low = last + 1;
  int high = backward.tokens;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (attention.first_key[middle] <= last) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return attention.reach == 0 || low - last < attention.reach ? low : last + attention.reach;
}

// Loads query rows from `first` on into a tile, with their facts. Rows from `count` on see no key.
// nothing.
__device__ void load_queries(const TrainingBackward& backward, const BackwardShared& shared,
                             const QueryRows& rows, int first) {
  const TrainingAttention& attention = backward.attention;
  const int dim = attention.head_dim;
  load_rows(shared.tile.keys, kEntryTile, dim,
            [&](int row) { return rows.in(attention.queries, first + row, dim); });
  load_rows(shared.tile.values, kEntryTile, dim,
            [&](int row) { return rows.in(backward.dout, first + row, dim); });
  if (threadIdx.x < kEntryTile) {
    const int row = first + static_cast<int>(threadIdx.x);
    QueryFacts facts{.token = -1};
    if (row < rows.count) {
      facts.token = rows.token(row);
      facts.first_key = attention.first_key[facts.token];
      facts.sums = backward.sums[static_cast<std::size_t>(rows.head(row)) * backward.padded_tokens +
                                 facts.token];
    }
    shared.facts[threadIdx.x] = facts;
  }
}

template <int kSteps>
__global__ void __launch_bounds__(kThreads)
    dkeys_kernel(const __grid_constant__ TrainingBackward backward) {
  extern __shared__ __align__(16) float memory[];
  const TrainingAttention& attention = backward.attention;
  const int dim = attention.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int entry = static_cast<int>(threadIdx.x) % kEntryTile;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kRowsPerWarp;
  const int first = static_cast<int>(blockIdx.x) * kRowsPerBlock;
  const QueryRows rows(attention, backward.tokens, kv_head);
  const TrainingScores scores(attention);
  const BackwardShared shared(memory, dim);
  load_rows(shared.rows, kRowsPerBlock, dim,
            [&](int row) { return head_of(attention.keys, first + row, kv_head, dim); });
  load_rows(shared.others, kRowsPerBlock, dim,
            [&](int row) { return head_of(attention.values, first + row, kv_head, dim); });

  float biases[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    biases[r] = key_bias(attention, first + warp_row + r, kv_head);
  }
  float dkeys[kRowsPerWarp][kSteps] = {};
  float dvalues[kRowsPerWarp][kSteps] = {};
  float dbias[kRowsPerWarp] = {};
  const int end =
      end_of_queries(backward, min(first + kRowsPerBlock, backward.tokens) - 1) * rows.group;
  for (int row = first * rows.group; row < end; row += kEntryTile) {
    __syncthreads();
    load_queries(backward, shared, rows, row);
    __syncthreads();
    const QueryFacts& query = shared.facts[entry];
    float products[kRowsPerWarp];
    float dweights[kRowsPerWarp];
    multiply_entries(shared.rows + warp_row * tile_stride(dim), shared.tile.keys, dim, products);
    multiply_entries(shared.others + warp_row * tile_stride(dim), shared.tile.values, dim,
                     dweights);
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      PairGradient pair;
      if (const int j = first + warp_row + r; scores.sees(query.token, query.first_key, j)) {
        pair = PairGradient(scores, products[r], scores.bias(query.token, j, biases[r]),
                            dweights[r], query.sums);
        dbias[r] += query.token - j > scores.window ? pair.dscore : 0.0F;
      }
      products[r] = pair.dproduct;
      dweights[r] = pair.weight;
    }
    add_weighted(products, shared.tile.keys, dim, dkeys);
    add_weighted(dweights, shared.tile.values, dim, dvalues);
  }
  const Matrix<float>& bias = backward.gradients.bias;
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const float sum = tile_sum(dbias[r]);
    const int key = first + warp_row + r;
    if (key >= backward.tokens) {
      continue;
    }
    store_row(head_of(backward.gradients.keys, key, kv_head, dim), dkeys[r], dim);
    store_row(head_of(backward.gradients.values, key, kv_head, dim), dvalues[r], dim);
    if (lane == 0 && bias.rows != 0) {
      bias.data[key * bias.stride + kv_head] = sum;
    }
  }
}

// A block per query head. A sink's weight reduces every query's weights, and it has no value.
__global__ void __launch_bounds__(kThreads)
    dsinks_kernel(const __grid_constant__ TrainingBackward backward) {
  const int head = static_cast<int>(blockIdx.x);
  const float sink = backward.attention.sinks[head] * std::numbers::log2e_v<float>;
  const QuerySums* sums = backward.sums + static_cast<std::size_t>(head) * backward.padded_tokens;
  float own = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < backward.tokens; i += kThreads) {
    own -= exp2f(sink - sums[i].normalizer) * sums[i].dot;
  }
  const float total = block_sum<kThreads>(own);
  if (threadIdx.x == 0) {
    backward.gradients.sinks[head] = total;
  }
}

}  // namespace

int general_training_shared_memory(int head_dim) {
  return BackwardShared::bytes(head_dim);
}

void launch_general_training_backward(const TrainingBackward& backward, cudaStream_t stream) {
  const TrainingAttention& attention = backward.attention;
  const int bytes = BackwardShared::bytes(attention.head_dim);
  const auto launch = [&](auto* kernel, int rows) {
    winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(kernel));
    winnow::cuda::launch(kernel, dim3(row_blocks(rows), backward.kv_heads), kThreads, bytes, stream,
                         false, backward);
  };
  launch_query_sums(backward, stream);
  with_channel_steps(attention.head_dim, [&]<int kSteps>() {
    launch(dqueries_kernel<kSteps>, backward.tokens * attention.group);
    launch(dkeys_kernel<kSteps>, backward.tokens);
  });
  if (attention.sinks != nullptr && backward.gradients.sinks != nullptr) {
    winnow::cuda::launch(dsinks_kernel, backward.kv_heads * attention.group, kThreads, 0, stream,
                         false, backward);
  }
}

}  // namespace winnow::ops::cuda
