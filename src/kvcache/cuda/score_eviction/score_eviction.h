// Rules that drop an entry for each token over the budget, on the device: attention of one token
// after another, each of which may decide which entry goes (kvcache/score_eviction.h).
#pragma once

#include <cuda_runtime_api.h>

#include "kvcache/cuda/append/append.h"
#include "kvcache/cuda/score_eviction/score_eviction_kernels.h"
#include "ops/cuda/general/attention_logits.h"
#include "parallel/cuda/device_ranks.h"

namespace winnow::kvcache::cuda {

class ScoreEvictionAttention {
 public:
  /// For up to `most_batch` sequences at once. `ranks`: those that share the model's heads, or
  /// null; all of them make one. Throws Error if their heads must agree and they share no memory.
  ScoreEvictionAttention(const DeviceCache& cache, int most_batch,
                         parallel::cuda::DeviceRanks* ranks);

  /// Grows buffers to match the cache's tables. To be called when those have grown.
  void reserve();

  /// Computes attention of tokens that append() has just taken in a full layer, and drops entries
  /// over the budget. out [batch, heads * head_dim].
  void attend(const DecodeAppend& step, const ops::cuda::AttentionLogits& logits, bf16* out,
              cudaStream_t stream) const;

  /// Takes the chunk's tokens one by one: appends, attends, drops. out [tokens, heads * head_dim].
  void append_and_attend(const Projection& projection, const PrefillAppend& chunk, const Band& band,
                         const ops::cuda::AttentionLogits& logits, bf16* out,
                         cudaStream_t stream) const;

 private:
  [[nodiscard]] ScoreEvictionArguments arguments(int layer,
                                                 const ops::cuda::AttentionLogits& logits) const;
  void launch(const ScoreEvictionArguments& arguments, cudaStream_t stream) const;

  const DeviceCache& cache_;
  parallel::cuda::DeviceRanks* ranks_;  // if their heads must agree
  ScoreEvictionShape shape_;
  int most_batch_;
  int rows_at_once_;
  winnow::cuda::DeviceBuffer<float> weights_;          // [most rows, group, entries]
  winnow::cuda::DeviceBuffer<float> sums_;             // [2, most rows, entries] TOVA
  winnow::cuda::DeviceBuffer<std::uint32_t> arrived_;  // [most_batch] TOVA
};

}  // namespace winnow::kvcache::cuda
