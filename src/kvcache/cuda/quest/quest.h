// Quest on the device: decode attention over the pages that each query head chooses
// (kvcache/quest.h).
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "kvcache/cuda/append/append.h"
#include "kvcache/cuda/quest/quest_kernels.h"
#include "ops/cuda/decode/decode_attention.h"

namespace winnow::kvcache::cuda {

class QuestAttention {
 public:
  /// For up to `most_tokens` tokens at once; `layers` of them follow one plan.
  QuestAttention(const DeviceCache& cache, int most_tokens, int layers);

  /// Makes room for what the cache's tables have room for. To be called when they have grown.
  void reserve();

  /// How many first tokens of a chunk belong to the prompt, whose queries see everything.
  [[nodiscard]] static int prompt_tokens(const Rule& rule, int length, int tokens);

  /// Bounds of the pages that append() has just put a chunk's entries on.
  void renew_bounds(const PrefillAppend& chunk, cudaStream_t stream) const;

  /// Plans a step of one token of each of `batch` sequences, all layers; `count_reads`: for
  /// reads().
  void plan(const std::int32_t* slots, int batch, cudaStream_t stream, bool count_reads = false);
  /// Attends in a layer for those tokens, which append() has just taken. `scale`: of the scores.
  /// out [batch, heads * head_dim].
  void attend(const DecodeAppend& step, float scale, bf16* out, cudaStream_t stream) const;
  /// [layers, most_tokens, kv_heads] entries that a KV head's queries read between them, of a step
  /// that is over.
  [[nodiscard]] std::vector<std::int32_t> reads() const;

  /// Attends for a chunk, which append() and renew_bounds() have just taken, a few tokens at a
  /// time. out [tokens, heads * head_dim]. `visible` [tokens, kv_heads], unless it is empty,
  /// receives how many entries a KV head's queries read between them.
  void attend(const PrefillAppend& chunk, float scale, bf16* out, std::span<std::int32_t> visible,
              cudaStream_t stream);

 private:
  void plan(const QuestTokens& tokens, cudaStream_t stream);
  void attend_to_chosen(int layer, float scale, const float* queries, bf16* out,
                        cudaStream_t stream) const;
  [[nodiscard]] QuestChoice choice() const;

  const DeviceCache& cache_;
  int heads_;
  int most_tokens_;
  QuestTokens tokens_;         // that are planned
  bool counts_reads_ = false;  // of those
  ops::cuda::DecodePlan plan_;
  winnow::cuda::DeviceBuffer<std::int32_t> in_order_;  // [most_tokens] 0, 1, 2 ...
  winnow::cuda::DeviceBuffer<std::int32_t> entries_;   // [most_tokens, heads]
  winnow::cuda::DeviceBuffer<std::int32_t> planned_;   // [most_tokens, heads]
  winnow::cuda::DeviceBuffer<std::uint32_t> pages_;    // [most_tokens, heads, pages]
  winnow::cuda::DeviceBuffer<float> bounds_;           // [most_tokens, heads, pages]
  winnow::cuda::DeviceBuffer<float> queries_;          // [most_tokens, heads, head_dim]
  winnow::cuda::DeviceBuffer<std::int32_t> reads_;     // [layers, most_tokens, kv_heads]
};

}  // namespace winnow::kvcache::cuda
