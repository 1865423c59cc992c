// The scores of Expected Attention (kvcache/eviction/expected_attention.cc).
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/entry_row.cuh"
#include "kvcache/cuda/score_eviction/rounds_kernels.h"
#include "kvcache/eviction/expected_attention.h"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kEntryWarps = 8;

__device__ float sum_of_warp(float x) {
  return reduce_warp(x, 32, [](float a, float b) { return a + b; });
}

// The mean rotation of the positions from `position` on: a thread per plane.
__global__ void mean_rotations_kernel(int position, NotedQueries noted) {
  const int plane = static_cast<int>(threadIdx.x);
  float2 mean{0.0F, 0.0F};
  for (int i = 0; i < kFuturePositions; ++i) {
    float sine = 0.0F;
    float cosine = 0.0F;
    sincosf(static_cast<float>(position + i) * noted.frequencies[plane], &sine, &cosine);
    mean.x += cosine / kFuturePositions;
    mean.y += sine / kFuturePositions;
  }
  noted.rotations[plane] = mean;
}

// Keys, rotated to match queries before RoPE: block (x, KV head), a warp per entry.
template <class Format>
__global__ void __launch_bounds__(kEntryWarps * 32)
    unrotated_keys_kernel(const __grid_constant__ RoundLayer layer, NotedQueries noted,
                          RoundScratch scratch) {
  const CacheView& cache = layer.cache;
  const int slot = static_cast<int>(blockIdx.x) * kEntryWarps + static_cast<int>(threadIdx.x) / 32;
  if (slot >= layer.entries) {
    return;
  }
  const std::size_t row = cache.row(layer.layer, layer.slot, static_cast<int>(blockIdx.y));
  float* key = scratch.keys + (blockIdx.y * scratch.stride + slot) * cache.head_dim;
  auto vector =
      load_entry<Format, 0, true>(cache, cache.archive_pages + row * cache.archive_stride, slot);
  if constexpr (Format::kRotated) {
    vector.rotate_back();
  }
  vector.store(key);
  __syncwarp();
  for (int plane = static_cast<int>(threadIdx.x) % 32; plane < noted.turned; plane += 32) {
    float& a = key[noted.interleaved ? 2 * plane : plane];
    float& b = key[noted.interleaved ? 2 * plane + 1 : plane + noted.turned];
    const float2 rotation = noted.rotations[plane];
    const float first = a;
    a = rotation.x * first + rotation.y * b;
    b = rotation.x * b - rotation.y * first;
  }
}

// The logarithms of the expected weights: block (x, query head), a warp per entry.
__global__ void __launch_bounds__(kEntryWarps * 32)
    expected_logits_kernel(const __grid_constant__ RoundLayer layer, float scale,
                           NotedQueries noted, RoundScratch scratch) {
  const int dim = layer.cache.head_dim;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int slot = kExpectedSinks + static_cast<int>(blockIdx.x) * kEntryWarps +
                   static_cast<int>(threadIdx.x) / 32;
  if (slot >= layer.entries) {
    return;
  }
  const std::size_t query_head = blockIdx.y;
  const float* mean = noted.statistics + query_head * dim * (1 + dim);
  const float* products = mean + dim;
  const float* key = scratch.keys + (query_head / layer.group * scratch.stride + slot) * dim;
  float linear = 0.0F;
  for (int d = lane; d < dim; d += 32) {
    linear += key[d] * mean[d];
  }
  float square = 0.0F;
  for (int i = 0; i < dim; ++i) {
    float product = 0.0F;
    for (int j = lane; j < dim; j += 32) {
      product += products[i * dim + j] * key[j];
    }
    square += key[i] * product;
  }
  const float half = 0.5F * scale * scale / static_cast<float>(layer.entries - kExpectedSinks);
  const float logit = scale * sum_of_warp(linear) + half * sum_of_warp(square);
  if (lane == 0) {
    scratch.logits[query_head * scratch.stride + slot] = logit;
  }
}

// A block per KV head: the weights, summed over the group, times the L2 norms of values.
template <class Format>
__global__ void __launch_bounds__(kScoreEvictionThreads)
    expected_scores_kernel(const __grid_constant__ RoundLayer layer, RoundScratch scratch) {
  const CacheView& cache = layer.cache;
  const std::size_t row = cache.row(layer.layer, layer.slot, static_cast<int>(blockIdx.x));
  const std::uint32_t* pages = cache.archive_pages + row * cache.archive_stride;
  float* scores = scratch.scores + blockIdx.x * scratch.stride;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < layer.entries; i += kScoreEvictionThreads) {
    scores[i] = 0.0F;  // the first entries are not weighed
  }
  __syncthreads();
  for (int g = 0; g < layer.group; ++g) {
    const float* logits = scratch.logits + (blockIdx.x * layer.group + g) * scratch.stride;
    float largest = -INFINITY;
    for (int i = kExpectedSinks + thread; i < layer.entries; i += kScoreEvictionThreads) {
      largest = fmaxf(largest, logits[i]);
    }
    largest = block_max(largest);
    float sum = 0.0F;
    for (int i = kExpectedSinks + thread; i < layer.entries; i += kScoreEvictionThreads) {
      sum += expf(logits[i] - largest);
    }
    sum = block_sum(sum);
    for (int i = kExpectedSinks + thread; i < layer.entries; i += kScoreEvictionThreads) {
      scores[i] += expf(logits[i] - largest) / sum;
    }
  }
  __syncthreads();
  for (int i = kExpectedSinks + thread / 32; i < layer.entries; i += kScoreEvictionWarps) {
    const EntryRow<Format, 0, false> value(cache, pages, i);
    float squares = 0.0F;
    for (int d = thread % 32; d < cache.head_dim; d += 32) {
      squares += value[d] * value[d];
    }
    squares = sum_of_warp(squares);
    if (thread % 32 == 0) {
      scores[i] *= sqrtf(squares);
    }
  }
}

}  // namespace

void launch_expect_attention(ops::EntryFormat format, const RoundLayer& layer, float scale,
                             const NotedQueries& noted, const RoundScratch& scratch,
                             cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((layer.entries + kEntryWarps - 1) / kEntryWarps);
  const auto heads = static_cast<unsigned>(layer.kv_heads);
  constexpr int kThreads = kEntryWarps * 32;
  if (noted.turned > 0) {
    winnow::cuda::launch(mean_rotations_kernel, 1, noted.turned, 0, stream, false, layer.entries,
                         noted);
  }
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    using Format = ops::cuda::FormatOf<kType>;
    winnow::cuda::launch(unrotated_keys_kernel<Format>, dim3(blocks, heads), kThreads, 0, stream,
                         false, layer, noted, scratch);
    winnow::cuda::launch(expected_logits_kernel, dim3(blocks, heads * layer.group), kThreads, 0,
                         stream, false, layer, scale, noted, scratch);
    winnow::cuda::launch(expected_scores_kernel<Format>, heads, kScoreEvictionThreads, 0, stream,
                         false, layer, scratch);
  });
}

}  // namespace winnow::kvcache::cuda
