// General training attention, forward: a block processes 32 query rows of a KV head over the keys
// that any of them sees, 16 at a time.
#include "base/cuda/launch.cuh"
#include "ops/cuda/general/training_attention.h"
#include "ops/cuda/general/training_rows.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = kRowWarps * 32;

// Query rows [kRowsPerBlock][stride], the tile, and its biases.
int shared_bytes(int head_dim) {
  return static_cast<int>(sizeof(float)) *
         (kRowsPerBlock * tile_stride(head_dim) + EntryTile::floats(head_dim) + kEntryTile);
}

template <int kSteps>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const __grid_constant__ TrainingForward forward) {
  extern __shared__ __align__(16) float memory[];
  const TrainingAttention& attention = forward.attention;
  const int dim = attention.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kRowsPerWarp;
  // The last rows see the most keys: they begin first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRowsPerBlock;
  const QueryRows rows(attention, forward.tokens, kv_head);
  const TrainingScores scores(attention);
  const EntryTile tile(memory + kRowsPerBlock * tile_stride(dim), dim);
  float* biases = tile.keys + EntryTile::floats(dim);
  load_rows(memory, kRowsPerBlock, dim,
            [&](int row) { return rows.in(attention.queries, first + row, dim); });

  int query[kRowsPerWarp];
  int first_key[kRowsPerWarp];
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    query[r] = rows.token(min(first + warp_row + r, rows.count - 1));
    first_key[r] = attention.first_key[query[r]];
  }
  const int first_query = rows.token(first);
  const int end = rows.token(min(first + kRowsPerBlock, rows.count) - 1) + 1;
  SoftmaxOutputs<kRowsPerWarp, kSteps> outputs;
  for (int key = scores.first_seen(first_query, attention.first_key[first_query]); key < end;
       key += kEntryTile) {
    __syncthreads();
    load_keys(attention, tile, biases, key, kv_head);
    __syncthreads();
    outputs.take(memory + warp_row * tile_stride(dim), tile, [&](int r, int entry, float product) {
      const int j = key + entry;
      return scores.sees(query[r], first_key[r], j)
                 ? TrainingScores::in_powers_of_two(scores.cap.natural(product),
                                                    scores.bias(query[r], j, biases[entry]))
                 : -INFINITY;
    });
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int row = first + warp_row + r;
    if (row >= rows.count) {
      continue;
    }
    const int head = rows.head(row);
    if (attention.sinks != nullptr) {
      outputs.take_sink(r, attention.sinks[head] * std::numbers::log2e_v<float>);
    }
    const float inverse = outputs.inverse_sum(r);
    bf16* out = rows.in(forward.out, row, dim);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (const int d = lane + 32 * i; d < dim) {
        out[d] = to_bf16(outputs.out[r][i] * inverse);
      }
    }
    if (lane == 0) {
      forward.normalizers.data[query[r] * forward.normalizers.stride + head] =
          outputs.normalizer(r);
    }
  }
}

}  // namespace

void launch_general_training_forward(const TrainingForward& forward, cudaStream_t stream) {
  const int bytes = shared_bytes(forward.attention.head_dim);
  const dim3 grid(row_blocks(forward.tokens * forward.attention.group), forward.kv_heads);
  with_channel_steps(forward.attention.head_dim, [&]<int kSteps>() {
    auto* kernel = forward_kernel<kSteps>;
    winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(kernel));
    winnow::cuda::launch(kernel, grid, kThreads, bytes, stream, false, forward);
  });
}

}  // namespace winnow::ops::cuda
