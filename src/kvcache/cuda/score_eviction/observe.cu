// The attention of given tokens as scores: how much each archived entry receives.
#include "base/cuda/device.h"
#include "base/cuda/launch.cuh"
#include "kvcache/cuda/score_eviction/block_reduce.cuh"
#include "kvcache/cuda/score_eviction/entry_row.cuh"
#include "kvcache/cuda/score_eviction/rounds_kernels.h"
#include "ops/cuda/general/attention_tile.cuh"
#include "ops/cuda/pages/kernel_shape.cuh"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kAddThreads = 256;

// A KV head of a token, for a block.
template <class Format>
class Observer {
 public:
  __device__ Observer(const RoundLayer& layer, const ObservedTokens& tokens,
                      const RoundScratch& scratch, float* queries)
      : layer_(layer),
        cache_(layer.cache),
        tokens_(tokens),
        head_(static_cast<int>(blockIdx.x)),
        position_(tokens.position + static_cast<int>(blockIdx.y)),
        stride_(scratch.stride),
        queries_(queries) {
    const std::size_t row = cache_.row(layer.layer, layer.slot, head_);
    pages_ = cache_.archive_pages + row * cache_.archive_stride;
    positions_ = cache_.positions + row * cache_.entry_stride;
    const std::size_t own = blockIdx.y * gridDim.x + blockIdx.x;
    logits_ = scratch.logits + own * layer.group * stride_;
    votes_ = scratch.votes + own * stride_;
  }

  __device__ void run() {
    load_queries();
    multiply();
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      votes_[i] = 0.0F;
    }
    if (tokens_.averaged > 0) {
      add_largest();
      return;
    }
    const float* sinks = tokens_.logits.sinks;
    for (int g = 0; g < layer_.group; ++g) {
      add_weights(g, sinks != nullptr ? sinks[head_ * layer_.group + g] : -INFINITY, 1.0F);
    }
  }

 private:
  __device__ void load_queries() {
    const int count = layer_.group * cache_.head_dim;
    const bf16* from =
        tokens_.queries + (static_cast<std::size_t>(blockIdx.y) * gridDim.x + head_) * count;
    for (int i = threadIdx.x; i < count; i += kScoreEvictionThreads) {
      queries_[i] = to_float(from[i]);
    }
    __syncthreads();
  }

  // Logits of all entries that the token sees, a warp per entry. Those of later tokens get none.
  __device__ void multiply() {
    const ops::cuda::LogitRule logit(tokens_.logits);
    for (int i = threadIdx.x / 32; i < layer_.entries; i += kScoreEvictionWarps) {
      const bool sees =
          tokens_.averaged > 0 ? positions_[i] < tokens_.past_end : positions_[i] <= position_;
      const auto key = load_entry<Format, 0, true>(cache_, pages_, i);
      for (int g = 0; g < layer_.group; ++g) {
        const float product = key.dot(queries_ + g * cache_.head_dim);
        if (threadIdx.x % 32 == 0) {
          logits_[g * stride_ + i] = sees ? logit.natural(product) : -INFINITY;
        }
      }
    }
    __syncthreads();
  }

  // R-KV: softmax over the group's largest logits.
  __device__ void add_largest() {
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      for (int g = 1; g < layer_.group; ++g) {
        logits_[i] = fmaxf(logits_[i], logits_[g * stride_ + i]);
      }
    }
    add_weights(0, -INFINITY, static_cast<float>(tokens_.averaged));
  }

  // Softmax over a query head's logits. A thread handles the same entries for all heads.
  __device__ void add_weights(int g, float sink, float averaged) {
    const float* logits = logits_ + g * stride_;
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      largest = fmaxf(largest, logits[i]);
    }
    largest = fmaxf(block_max(largest), sink);
    if (largest == -INFINITY) {
      return;  // there is nothing to see
    }
    float sum = 0.0F;
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      sum += expf(logits[i] - largest);
    }
    sum = block_sum(sum) + expf(sink - largest);
    for (int i = threadIdx.x; i < layer_.entries; i += kScoreEvictionThreads) {
      votes_[i] += expf(logits[i] - largest) / sum / averaged;
    }
  }

  const RoundLayer& layer_;
  const CacheView& cache_;
  const ObservedTokens& tokens_;
  const int head_;
  const int position_;
  const std::size_t stride_;
  float* queries_;  // [group, head_dim]
  const std::uint32_t* pages_;
  const std::int32_t* positions_;
  float* logits_;
  float* votes_;
};

// Block (KV head, token).
template <class Format>
__global__ void __launch_bounds__(kScoreEvictionThreads)
    observe_kernel(const __grid_constant__ RoundLayer layer,
                   const __grid_constant__ ObservedTokens tokens, RoundScratch scratch) {
  extern __shared__ __align__(16) float queries[];
  Observer<Format>(layer, tokens, scratch, queries).run();
}

// Adds one token's attention after another, as the host does: block (x, KV head).
__global__ void __launch_bounds__(kAddThreads)
    add_votes_kernel(const __grid_constant__ RoundLayer layer, int tokens, RoundScratch scratch) {
  const int entry = static_cast<int>(blockIdx.x) * kAddThreads + static_cast<int>(threadIdx.x);
  if (entry >= layer.entries) {
    return;
  }
  const std::size_t row = layer.cache.row(layer.layer, layer.slot, static_cast<int>(blockIdx.y));
  float& received = layer.cache.received[row * layer.cache.entry_stride + entry];
  float sum = received;
  for (int token = 0; token < tokens; ++token) {
    sum += scratch.votes[(token * gridDim.y + blockIdx.y) * scratch.stride + entry];
  }
  received = sum;
}

// Block (x, KV head).
__global__ void __launch_bounds__(kAddThreads)
    score_attention_kernel(const __grid_constant__ RoundLayer layer, int count, int neighbours,
                           RoundScratch scratch) {
  const int entry = static_cast<int>(blockIdx.x) * kAddThreads + static_cast<int>(threadIdx.x);
  if (entry >= count) {
    return;
  }
  const std::size_t row = layer.cache.row(layer.layer, layer.slot, static_cast<int>(blockIdx.y));
  const float* received = layer.cache.received + row * layer.cache.entry_stride;
  float sum = 0.0F;
  for (int i = max(entry - neighbours, 0); i < min(entry + neighbours + 1, count); ++i) {
    sum += received[i];
  }
  scratch.scores[blockIdx.y * scratch.stride + entry] = sum;
}

dim3 grid_of_entries(const RoundLayer& layer) {
  return {static_cast<unsigned>((layer.entries + kAddThreads - 1) / kAddThreads),
          static_cast<unsigned>(layer.kv_heads)};
}

}  // namespace

void launch_observe(ops::EntryFormat format, const RoundLayer& layer, const ObservedTokens& tokens,
                    const RoundScratch& scratch, cudaStream_t stream) {
  const dim3 grid(layer.kv_heads, tokens.count);
  const int bytes = layer.group * layer.cache.head_dim * int{sizeof(float)};
  ops::cuda::with_format(format, [&]<ops::EntryFormat kType>() {
    const auto kernel = observe_kernel<ops::cuda::FormatOf<kType>>;
    winnow::cuda::allow_most_shared_memory(reinterpret_cast<const void*>(kernel));
    winnow::cuda::launch(kernel, grid, kScoreEvictionThreads, bytes, stream, false, layer, tokens,
                         scratch);
  });
  winnow::cuda::launch(add_votes_kernel, grid_of_entries(layer), kAddThreads, 0, stream, false,
                       layer, tokens.count, scratch);
}

void launch_score_attention(const RoundLayer& layer, int count, int neighbours,
                            const RoundScratch& scratch, cudaStream_t stream) {
  winnow::cuda::launch(score_attention_kernel, grid_of_entries(layer), kAddThreads, 0, stream,
                       false, layer, count, neighbours, scratch);
}

}  // namespace winnow::kvcache::cuda
