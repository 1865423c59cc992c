// Training attention, forward, for any device with mma.sync: a block processes 64 queries of a head
// over the keys of their documents, 64 at a time.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training/training_tile.cuh"

namespace winnow::ops::cuda {
namespace {

template <int D>
struct Shared {
  RowTile<D> queries;
  RowTile<D> keys;
  RowTile<D> values;
  float bias[kTileRows];
};

template <int D>
__global__ void __launch_bounds__(kTileThreads)
    forward_kernel(const __grid_constant__ TrainingForward forward) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<D>*>(memory);
  const TrainingAttention& attention = forward.attention;
  const ScoreRule score(attention);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTileRows;  // longest first
  const int head = blockIdx.y;
  const int kv_head = head / attention.group;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;  // the warp's first
  int query[2];
  int first_key[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    query[r] = first + row + lane / 4 + 8 * r;
    first_key[r] = attention.first_key[min(query[r], forward.tokens - 1)];
  }
  shared.queries.load(attention.queries, first, head * attention.head_dim, attention.head_dim);
  float out[D / 2] = {};
  SoftmaxRows softmax;
  const KeyBlocks blocks(attention, first, forward.tokens);
  for (int block = blocks.begin; block < blocks.end; ++block) {
    const int key = block * kTileRows;
    const int column = kv_head * attention.head_dim;
    __syncthreads();
    shared.keys.load(attention.keys, key, column, attention.head_dim);
    shared.values.load(attention.values, key, column, attention.head_dim);
    if (threadIdx.x < kTileRows) {
      shared.bias[threadIdx.x] = bias_of(attention, key + static_cast<int>(threadIdx.x), kv_head);
    }
    __syncthreads();
    float scores[kTileRows / 2];
    multiply_rows_of(shared.queries, row, shared.keys, scores);
#pragma unroll
    for (int i = 0; i < kTileRows / 2; ++i) {
      const int r = i / 2 % 2;
      const int j = i / 4 * 8 + lane % 4 * 2 + i % 2;
      scores[i] = score(scores[i], query[r], first_key[r], key + j, shared.bias[j]);
    }
    float factor[2];
    if (softmax.weigh(scores, 1.0F, factor)) {
      multiply_rows(out, factor);
    }
    add_product(scores, shared.values, out);
  }
  float sum[2];
  softmax.sums(sum);
  const float inverse[2] = {1.0F / sum[0], 1.0F / sum[1]};
  store_product<D>(out, inverse, forward.out, first + row, head * attention.head_dim,
                   attention.head_dim);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (lane % 4 == 0 && query[r] < forward.tokens) {
      forward.normalizers.data[query[r] * forward.normalizers.stride + head] =
          softmax.largest[r] * std::numbers::ln2_v<float> + logf(sum[r]);
    }
  }
}

}  // namespace

void launch_training_forward(const TrainingForward& forward, cudaStream_t stream) {
  with_padded_dim(forward.attention.head_dim, [&](auto dim) {
    constexpr int kBytes = sizeof(Shared<dim>);
    winnow::cuda::check(cudaFuncSetAttribute(forward_kernel<dim>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                        "shared memory of training attention");
    const dim3 grid((forward.tokens + kTileRows - 1) / kTileRows,
                    forward.kv_heads * forward.attention.group);
    winnow::cuda::launch(forward_kernel<dim>, grid, kTileThreads, kBytes, stream, false, forward);
  });
}

}  // namespace winnow::ops::cuda
