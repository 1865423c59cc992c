// Training attention, backward, for any device with mma.sync. Weights are recomputed from the
// forward pass's log-sum-exp (Dao et al. 2022), twice: once per block of keys, which
// gathers the gradients of keys, values and bias over all queries of its KV head, and once per
// block of queries. So no two blocks add to the same number.
#include "base/cuda/launch.cuh"
#include "ops/cuda/training/training_tile.cuh"

namespace winnow::ops::cuda {
namespace {

template <int D>
struct Shared {
  RowTile<D> queries;
  RowTile<D> dout;
  RowTile<D> keys;
  RowTile<D> values;
  float bias[kTileRows];
  QuerySums sums[kTileRows];
  int first_key[kTileRows];
};

/// A block of keys and the queries of its group.
template <int D>
__global__ void __launch_bounds__(kTileThreads)
    key_gradients_kernel(const __grid_constant__ TrainingBackward backward) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<D>*>(memory);
  const TrainingAttention& attention = backward.attention;
  const ScoreRule score(attention);
  const int dim = attention.head_dim;
  const int first = static_cast<int>(blockIdx.x) * kTileRows;
  const int last = min(first + kTileRows, backward.tokens) - 1;
  const int kv_head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;  // the warp's first
  const int key[2] = {first + row + lane / 4, first + row + lane / 4 + 8};
  const float bias[2] = {bias_of(attention, key[0], kv_head), bias_of(attention, key[1], kv_head)};
  shared.keys.load(attention.keys, first, kv_head * dim, dim);
  shared.values.load(attention.values, first, kv_head * dim, dim);
  float dkeys[D / 2] = {};
  float dvalues[D / 2] = {};
  float dbias[2] = {};
  for (int query = first; query < backward.tokens; query += kTileRows) {
    if (attention.first_key[query] > last) {
      break;  // only later documents follow
    }
    for (int g = 0; g < attention.group; ++g) {
      const int head = kv_head * attention.group + g;
      __syncthreads();
      shared.queries.load(attention.queries, query, head * dim, dim);
      shared.dout.load(backward.dout, query, head * dim, dim);
      if (threadIdx.x < kTileRows) {
        const int i = query + static_cast<int>(threadIdx.x);
        shared.sums[threadIdx.x] =
            backward.sums[static_cast<std::size_t>(head) * backward.padded_tokens + i];
        shared.first_key[threadIdx.x] = attention.first_key[min(i, backward.tokens - 1)];
      }
      __syncthreads();
      float weights[kTileRows / 2];
      float dscores[kTileRows / 2];
      multiply_rows_of(shared.keys, row, shared.queries, weights);
      multiply_rows_of(shared.values, row, shared.dout, dscores);
#pragma unroll
      for (int x = 0; x < kTileRows / 2; ++x) {
        const int r = x / 2 % 2;
        const int i = x / 4 * 8 + lane % 4 * 2 + x % 2;
        const auto [normalizer, dot] = shared.sums[i];
        weights[x] = exp2_of(score(weights[x], query + i, shared.first_key[i], key[r], bias[r]) -
                             normalizer);
        dscores[x] = weights[x] * (dscores[x] - dot);
        dbias[r] += query + i - key[r] > attention.window ? dscores[x] : 0.0F;
      }
      add_product(weights, shared.dout, dvalues);
      add_product(dscores, shared.queries, dkeys);
    }
  }
  const float one[2] = {1.0F, 1.0F};
  const float scale[2] = {attention.scale, attention.scale};
  store_product<D>(dvalues, one, backward.gradients.values, first + row, kv_head * dim, dim);
  store_product<D>(dkeys, scale, backward.gradients.keys, first + row, kv_head * dim, dim);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    dbias[r] += __shfl_xor_sync(0xFFFFFFFFU, dbias[r], 1);
    dbias[r] += __shfl_xor_sync(0xFFFFFFFFU, dbias[r], 2);
    const Matrix<float>& to = backward.gradients.bias;
    if (lane % 4 == 0 && static_cast<std::size_t>(key[r]) < to.rows) {
      to.data[key[r] * to.stride + kv_head] = dbias[r];
    }
  }
}

/// A block of queries of a head and the keys of their documents.
template <int D>
__global__ void __launch_bounds__(kTileThreads)
    query_gradients_kernel(const __grid_constant__ TrainingBackward backward) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Shared<D>*>(memory);
  const TrainingAttention& attention = backward.attention;
  const ScoreRule score(attention);
  const int dim = attention.head_dim;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTileRows;  // longest first
  const int head = blockIdx.y;
  const int kv_head = head / attention.group;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;  // the warp's first
  int query[2];
  int first_key[2];
  QuerySums sums[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    query[r] = first + row + lane / 4 + 8 * r;
    first_key[r] = attention.first_key[min(query[r], backward.tokens - 1)];
    sums[r] = backward.sums[static_cast<std::size_t>(head) * backward.padded_tokens + query[r]];
  }
  shared.queries.load(attention.queries, first, head * dim, dim);
  shared.dout.load(backward.dout, first, head * dim, dim);
  float dqueries[D / 2] = {};
  const KeyBlocks blocks(attention, first, backward.tokens);
  for (int block = blocks.begin; block < blocks.end; ++block) {
    const int key = block * kTileRows;
    __syncthreads();
    shared.keys.load(attention.keys, key, kv_head * dim, dim);
    shared.values.load(attention.values, key, kv_head * dim, dim);
    if (threadIdx.x < kTileRows) {
      shared.bias[threadIdx.x] = bias_of(attention, key + static_cast<int>(threadIdx.x), kv_head);
    }
    __syncthreads();
    float weights[kTileRows / 2];
    float dscores[kTileRows / 2];
    multiply_rows_of(shared.queries, row, shared.keys, weights);
    multiply_rows_of(shared.dout, row, shared.values, dscores);
#pragma unroll
    for (int x = 0; x < kTileRows / 2; ++x) {
      const int r = x / 2 % 2;
      const int j = x / 4 * 8 + lane % 4 * 2 + x % 2;
      const float s = score(weights[x], query[r], first_key[r], key + j, shared.bias[j]);
      dscores[x] = exp2_of(s - sums[r].normalizer) * (dscores[x] - sums[r].dot);
    }
    add_product(dscores, shared.keys, dqueries);
  }
  const float scale[2] = {attention.scale, attention.scale};
  store_product<D>(dqueries, scale, backward.gradients.queries, first + row, head * dim, dim);
}

template <class Kernel>
void launch(Kernel kernel, int bytes, int heads, const TrainingBackward& backward,
            cudaStream_t stream) {
  winnow::cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
      "shared memory of training attention");
  const dim3 grid((backward.tokens + kTileRows - 1) / kTileRows, heads);
  winnow::cuda::launch(kernel, grid, kTileThreads, bytes, stream, false, backward);
}

}  // namespace

void launch_training_backward(const TrainingBackward& backward, cudaStream_t stream) {
  with_padded_dim(backward.attention.head_dim, [&](auto dim) {
    constexpr int kBytes = sizeof(Shared<dim>);
    launch(key_gradients_kernel<dim>, kBytes, backward.kv_heads, backward, stream);
    launch(query_gradients_kernel<dim>, kBytes, backward.kv_heads * backward.attention.group,
           backward, stream);
  });
}

}  // namespace winnow::ops::cuda
