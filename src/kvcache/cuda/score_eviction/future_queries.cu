// TriAttention's scores (kvcache/eviction/triattention.cc): keys against what is expected of the
// queries to come.
#include <cmath>

#include "base/cuda/launch.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/entry_row.cuh"
#include "kvcache/cuda/score_eviction/rounds_kernels.h"
#include "kvcache/eviction/future_queries.h"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

__device__ double sum_of_warp(double x) {
  for (int step = 16; step > 0; step /= 2) {
    x += __shfl_xor_sync(0xFFFFFFFFU, x, step);
  }
  return x;
}

// The sum over a block's threads, returned to each of them.
__device__ double sum_of_block(double x) {
  __shared__ double parts[kScoreEvictionWarps];
  x = sum_of_warp(x);
  __syncthreads();  // all threads have read the result of an earlier call
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = x;
  }
  __syncthreads();
  x = 0.0;
  for (const double part : parts) {
    x += part;
  }
  return x;
}

// A KV head, for a block.
template <class Format>
class FutureScores {
 public:
  __device__ FutureScores(const RoundLayer& layer, const ExpectedQueries& expected,
                          const RoundScratch& scratch, float* keys)
      : layer_(layer),
        cache_(layer.cache),
        expected_(expected),
        first_query_(static_cast<int>(blockIdx.x) * layer.group),
        pages_(cache_.archive_pages +
               cache_.row(layer.layer, layer.slot, static_cast<int>(blockIdx.x)) *
                   cache_.archive_stride),
        key_(keys + threadIdx.x / 32 * cache_.head_dim),
        products_(expected.products + first_query_ * scratch.stride),
        scores_(scratch.scores + blockIdx.x * scratch.stride),
        stride_(scratch.stride) {}

  __device__ void run() {
    for (int slot = threadIdx.x / 32; slot < layer_.entries; slot += kScoreEvictionWarps) {
      load_key(slot);
      for (int g = 0; g < layer_.group; ++g) {
        const double product = sum_of_warp(own_part(first_query_ + g));
        if (threadIdx.x % 32 == 0) {
          products_[g * stride_ + slot] = product;
        }
      }
    }
    __syncthreads();
    for (int g = 0; g < layer_.group; ++g) {
      take_most(g);
    }
  }

 private:
  __device__ void load_key(int slot) {
    auto key = load_entry<Format, 0, true>(cache_, pages_, slot);
    if constexpr (Format::kRotated) {
      key.rotate_back();
    }
    __syncwarp();  // all lanes have read the last key
    key.store(key_);
    __syncwarp();
  }

  // The length of the key in a plane, see plane_lengths().
  [[nodiscard]] __device__ float length_in(int plane) const {
    const int turned = expected_.turned;
    if (plane >= turned) {
      return fabsf(key_[turned + plane]);
    }
    const float a = key_[expected_.interleaved ? 2 * plane : plane];
    const float b = key_[expected_.interleaved ? 2 * plane + 1 : plane + turned];
    return sqrtf(a * a + b * b);
  }

  // This lane's part of a query head's score of the key.
  [[nodiscard]] __device__ double own_part(int query) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int planes = cache_.head_dim - expected_.turned;
    const double* mean = expected_.means + static_cast<std::size_t>(query) * cache_.head_dim;
    const double* excess = expected_.excesses + static_cast<std::size_t>(query) * planes;
    double sum = 0.0;
    for (int d = lane; d < cache_.head_dim; d += 32) {
      sum += mean[d] * key_[d];
    }
    for (int plane = lane; plane < planes; plane += 32) {
      sum += excess[plane] * length_in(plane);
    }
    return sum;
  }

  // Standardises a query head's scores; each entry gets the largest of the group.
  __device__ void take_most(int g) {
    const double* products = products_ + g * stride_;
    double own = 0.0;
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      own += products[i];
    }
    const double mean = sum_of_block(own) / layer_.entries;
    own = 0.0;
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      own += (products[i] - mean) * (products[i] - mean);
    }
    const double deviation = fmax(sqrt(sum_of_block(own) / layer_.entries), kLeastDeviation);
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      const auto score = static_cast<float>((products[i] - mean) / deviation);
      scores_[i] = g == 0 ? score : fmaxf(scores_[i], score);
    }
  }

  const RoundLayer& layer_;
  const CacheView& cache_;
  const ExpectedQueries& expected_;
  const int first_query_;
  const std::uint32_t* pages_;
  float* key_;  // of the warp's entry
  double* products_;
  float* scores_;
  const std::size_t stride_;
};

// A block per KV head.
template <class Format>
__global__ void __launch_bounds__(kScoreEvictionThreads)
    score_future_kernel(const __grid_constant__ RoundLayer layer,
                        const __grid_constant__ ExpectedQueries expected, RoundScratch scratch) {
  extern __shared__ __align__(16) float keys[];
  FutureScores<Format>(layer, expected, scratch, keys).run();
}

}  // namespace

void launch_score_future(ops::EntryFormat format, const RoundLayer& layer,
                         const ExpectedQueries& expected, const RoundScratch& scratch,
                         cudaStream_t stream) {
  const int bytes = kScoreEvictionWarps * layer.cache.head_dim * int{sizeof(float)};
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    winnow::cuda::launch(score_future_kernel<ops::cuda::FormatOf<kType>>, layer.kv_heads,
                         kScoreEvictionThreads, bytes, stream, false, layer, expected, scratch);
  });
}

}  // namespace winnow::kvcache::cuda
