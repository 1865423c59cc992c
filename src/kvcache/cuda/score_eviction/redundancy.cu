// R-KV's scores (kvcache/eviction/rkv.cc): attention, less the similarity with other keys.
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/entry_row.cuh"
#include "kvcache/cuda/score_eviction/rounds_kernels.h"
#include "kvcache/eviction/rkv.h"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kOrderThreads = 256;
constexpr int kTile = 64;   // keys, in both directions
constexpr int kDepth = 16;  // channels that are in shared memory
constexpr int kEach = 4;    // keys of a thread, in both directions
constexpr int kTileThreads = kTile / kEach * (kTile / kEach);

// The slots by position: holes[rank] = slot. Block (x, KV head), a thread per slot.
__global__ void __launch_bounds__(kOrderThreads)
    order_kernel(const __grid_constant__ RoundLayer layer, RoundScratch scratch) {
  const int slot = static_cast<int>(blockIdx.x) * kOrderThreads + static_cast<int>(threadIdx.x);
  if (slot >= layer.entries) {
    return;
  }
  const std::size_t row = layer.cache.row(layer.layer, layer.slot, static_cast<int>(blockIdx.y));
  const std::int32_t* positions = layer.cache.positions + row * layer.cache.entry_stride;
  int rank = 0;
  for (int other = 0; other < layer.entries; ++other) {
    rank += positions[other] < positions[slot] ? 1 : 0;
  }
  scratch.holes[blockIdx.y * scratch.stride + rank] = slot;
}

// Keys of unit length, by position: block (x, KV head), a warp per key.
template <class Format>
__global__ void __launch_bounds__(kOrderThreads)
    unit_keys_kernel(const __grid_constant__ RoundLayer layer, RoundScratch scratch) {
  const CacheView& cache = layer.cache;
  const int rank = static_cast<int>(blockIdx.x * kOrderThreads + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (rank >= layer.entries) {
    return;
  }
  const std::size_t row = cache.row(layer.layer, layer.slot, static_cast<int>(blockIdx.y));
  const std::size_t place = blockIdx.y * scratch.stride + rank;
  float* key = scratch.keys + place * cache.head_dim;
  load_entry<Format, 0, true>(cache, cache.archive_pages + row * cache.archive_stride,
                              scratch.holes[place])
      .store(key);
  __syncwarp();
  float squares = 0.0F;
  for (int d = lane; d < cache.head_dim; d += 32) {
    squares += key[d] * key[d];
  }
  squares = reduce_warp(squares, 32, [](float a, float b) { return a + b; });
  for (int d = lane; d < cache.head_dim; d += 32) {
    key[d] /= sqrtf(squares) + 1e-8F;
  }
}

// The cosines of a tile of keys, from `first` on, with all keys: take(own, other, cosine), where
// `own` < kEach counts the thread's keys. By a block of kTileThreads.
template <class Take>
__device__ void each_cosine(const float* keys, int count, int dim, int first, const Take& take) {
  __shared__ float own[kDepth][kTile];
  __shared__ float others[kDepth][kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / (kTile / kEach) * kEach;
  const int column = thread % (kTile / kEach) * kEach;
  const auto load = [&](float(&tile)[kDepth][kTile], int from, int channel) {
    for (int i = thread; i < kTile * kDepth; i += kTileThreads) {
      const int key = from + i / kDepth;
      const int d = channel + i % kDepth;
      tile[i % kDepth][i / kDepth] =
          key < count && d < dim ? keys[static_cast<std::size_t>(key) * dim + d] : 0.0F;
    }
  };
  for (int from = 0; from < count; from += kTile) {
    float cosines[kEach][kEach] = {};
    for (int channel = 0; channel < dim; channel += kDepth) {
      __syncthreads();  // all threads have read the last channels
      load(own, first, channel);
      load(others, from, channel);
      __syncthreads();
      for (int d = 0; d < kDepth; ++d) {
        for (int a = 0; a < kEach; ++a) {
          for (int b = 0; b < kEach; ++b) {
            cosines[a][b] += own[d][row + a] * others[d][column + b];
          }
        }
      }
    }
    for (int a = 0; a < kEach; ++a) {
      for (int b = 0; b < kEach; ++b) {
        if (first + row + a < count && from + column + b < count) {
          take(a, from + column + b, cosines[a][b]);
        }
      }
    }
  }
}

// For each key the newest other one that is similar, or -1: block (tile, KV head).
__global__ void __launch_bounds__(kTileThreads)
    newest_similar_kernel(const __grid_constant__ RoundLayer layer, RoundScratch scratch) {
  __shared__ int newest[kTile];
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / (kTile / kEach) * kEach;
  if (threadIdx.x < kTile) {
    newest[threadIdx.x] = -1;
  }
  __syncthreads();
  const int dim = layer.cache.head_dim;
  const float* keys = scratch.keys + blockIdx.y * scratch.stride * dim;
  each_cosine(keys, layer.entries, dim, first, [&](int own, int other, float cosine) {
    if (cosine > kRkvSimilar && other != first + row + own) {
      atomicMax(&newest[row + own], other);
    }
  });
  __syncthreads();
  if (threadIdx.x < kTile && first + threadIdx.x < layer.entries) {
    scratch.moved[blockIdx.y * scratch.stride + first + threadIdx.x] = newest[threadIdx.x];
  }
}

// The mean of each key's similarities with all keys, without those that leave it out, to votes. The
// order of additions does not depend on timing. Block (tile, KV head).
__global__ void __launch_bounds__(kTileThreads)
    sum_similarities_kernel(const __grid_constant__ RoundLayer layer, RoundScratch scratch) {
  constexpr int kColumns = kTile / kEach;
  __shared__ float sums[kTile][kColumns];
  const int first = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / kColumns * kEach;
  const std::size_t begin = blockIdx.y * scratch.stride;
  const int dim = layer.cache.head_dim;
  float own_sums[kEach] = {};
  each_cosine(
      scratch.keys + begin * dim, layer.entries, dim, first, [&](int own, int other, float cosine) {
        const int key = first + row + own;
        own_sums[own] += other != key && scratch.moved[begin + other] != key ? cosine : 0.0F;
      });
  for (int own = 0; own < kEach; ++own) {
    sums[row + own][threadIdx.x % kColumns] = own_sums[own];
  }
  __syncthreads();
  if (threadIdx.x < kTile && first + threadIdx.x < layer.entries) {
    float sum = 0.0F;
    for (const float part : sums[threadIdx.x]) {
      sum += part;
    }
    scratch.votes[begin + first + threadIdx.x] = sum / static_cast<float>(layer.entries);
  }
}

// Redundancy is the softmax of the mean similarities. A block per KV head.
__global__ void __launch_bounds__(kScoreEvictionThreads)
    weigh_redundancy_kernel(const __grid_constant__ RoundLayer layer, int newest,
                            RoundScratch scratch) {
  const CacheView& cache = layer.cache;
  const std::size_t row = cache.row(layer.layer, layer.slot, static_cast<int>(blockIdx.x));
  const float* received = cache.received + row * cache.entry_stride;
  const std::size_t begin = blockIdx.x * scratch.stride;
  const float* similarities = scratch.votes + begin;
  const std::int32_t* slots = scratch.holes + begin;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < layer.entries; i += kScoreEvictionThreads) {
    largest = fmaxf(largest, similarities[i]);
  }
  largest = block_max(largest);
  float sum = 0.0F;
  for (int i = threadIdx.x; i < layer.entries; i += kScoreEvictionThreads) {
    sum += expf(similarities[i] - largest);
  }
  sum = block_sum(sum);
  const int past = layer.entries - newest;
  for (int i = threadIdx.x; i < past; i += kScoreEvictionThreads) {
    float importance = 0.0F;
    for (int j = max(i - kRkvNeighbours, 0); j < min(i + kRkvNeighbours + 1, past); ++j) {
      importance = fmaxf(importance, received[slots[j]]);
    }
    const float redundancy = expf(similarities[i] - largest) / sum;
    scratch.scores[begin + slots[i]] = kRkvLambda * importance - (1.0F - kRkvLambda) * redundancy;
  }
}

unsigned blocks_for(int count, int of_block) {
  return static_cast<unsigned>((count + of_block - 1) / of_block);
}

}  // namespace

void launch_score_redundancy(ops::EntryFormat format, const RoundLayer& layer, int newest,
                             const RoundScratch& scratch, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(layer.kv_heads);
  winnow::cuda::launch(order_kernel, dim3(blocks_for(layer.entries, kOrderThreads), heads),
                       kOrderThreads, 0, stream, false, layer, scratch);
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(unit_keys_kernel<ops::cuda::FormatOf<kType>>,
                         dim3(blocks_for(layer.entries, kOrderThreads / 32), heads), kOrderThreads,
                         0, stream, false, layer, scratch);
  });
  const dim3 tiles(blocks_for(layer.entries, kTile), heads);
  winnow::cuda::launch(newest_similar_kernel, tiles, kTileThreads, 0, stream, false, layer,
                       scratch);
  winnow::cuda::launch(sum_similarities_kernel, tiles, kTileThreads, 0, stream, false, layer,
                       scratch);
  winnow::cuda::launch(weigh_redundancy_kernel, heads, kScoreEvictionThreads, 0, stream, false,
                       layer, newest, scratch);
}

}  // namespace winnow::kvcache::cuda
