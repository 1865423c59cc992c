// Quest on the device: decode attention over the pages that each query head chooses
// (kvcache/quest.h).
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <span>
#include <vector>

#include "kvcache/cuda/append/append.h"
#include "kvcache/cuda/quest/quest_kernels.h"
#include "ops/cuda/decode/decode_attention.h"
#include "ops/cuda/general/decode_attention.h"

namespace winnow::kvcache::cuda {

class QuestAttention {
 public:
  /// For up to `most_tokens` tokens at once; `layers` layers share one plan.
  QuestAttention(const DeviceCache& cache, int most_tokens, int layers);

  /// Grows buffers to match the cache's tables. To be called when those have grown.
  void reserve();

  /// Updates the bounds of the pages to which append() has just added a chunk, in a full layer.
  void renew_bounds(const PrefillAppend& chunk, cudaStream_t stream) const;

  /// Plans a step of one token of each of `batch` sequences, for all layers. `count_reads`: the
  /// step also counts what reads() returns.
  void plan(const std::int32_t* slots, int batch, cudaStream_t stream, bool count_reads = false);
  /// Whether plan() puts any work into the stream.
  [[nodiscard]] bool has_plan() const { return plan_.has_value(); }
  /// Computes attention of those tokens, which append() has just taken, in a full layer. `counts`:
  /// counts the layer's reads, if plan() asked for them. out [batch, heads * head_dim].
  void attend(const DecodeAppend& step, const ops::cuda::AttentionLogits& logits, bool counts,
              bf16* out, cudaStream_t stream) const;
  /// Distinct entries that the queries of each KV head read in a completed step: reads_stride()
  /// values per layer, the first of which are [batch, KV heads of the layer].
  [[nodiscard]] std::vector<std::int32_t> reads() const;
  [[nodiscard]] std::size_t reads_stride() const {
    return static_cast<std::size_t>(most_tokens_ * cache_.shape().most_kv_heads());
  }

  /// Computes attention of a chunk, for which append() and renew_bounds() have just run, a few
  /// tokens at a time; if the cache has windows, the chunk is one token. out [tokens, heads *
  /// head_dim]. `visible` [tokens, kv_heads], unless empty,
  /// receives the number of distinct entries that a KV head's queries read.
  void attend(const PrefillAppend& chunk, const ops::cuda::AttentionLogits& logits, bf16* out,
              std::span<std::int32_t> visible, cudaStream_t stream);

 private:
  void plan(const QuestTokens& tokens, cudaStream_t stream);
  [[nodiscard]] QuestLayer layer(int index) const;
  // Computes attention of the planned tokens, whose pages have bounds already. `place`: the layer's
  // index in the plan.
  template <class Query>
  void attend_to_best(const QuestLayer& layer, int place, const ops::cuda::AttentionLogits& logits,
                      const Query* queries, bf16* out, cudaStream_t stream) const;
  void attend_to_chosen(const QuestLayer& layer, int place,
                        const ops::cuda::AttentionLogits& logits, const float* queries, bf16* out,
                        cudaStream_t stream) const;
  [[nodiscard]] QuestChoice choice() const;
  // Whether queries read a window, too. Then the number of entries differs by layer.
  [[nodiscard]] bool has_window() const { return cache_.view().ring > 0; }

  const DeviceCache& cache_;
  int heads_;  // the most query heads of any layer
  int most_tokens_;
  QuestTokens tokens_;         // the planned tokens
  bool counts_reads_ = false;  // of the planned step
  // Exactly one of these two exists:
  std::optional<ops::cuda::DecodePlan> plan_;
  std::optional<ops::cuda::GeneralDecodeAttention> general_;
  winnow::cuda::DeviceBuffer<std::int32_t> in_order_;  // [most_tokens] 0, 1, 2 ...
  winnow::cuda::DeviceBuffer<std::int32_t> entries_;   // [most_tokens, heads]
  winnow::cuda::DeviceBuffer<std::int32_t> planned_;   // [most_tokens, heads]
  winnow::cuda::DeviceBuffer<std::uint32_t> pages_;    // [most_tokens, heads, pages]
  winnow::cuda::DeviceBuffer<float> bounds_;           // [most_tokens, heads, pages]
  winnow::cuda::DeviceBuffer<float> queries_;          // [most_tokens, heads, head_dim]
  winnow::cuda::DeviceBuffer<std::int32_t> reads_;     // [layers, reads_stride()]
  // If there is a window:
  winnow::cuda::DeviceBuffer<std::uint32_t> windows_;  // [most_tokens, heads, pages of the window]
  winnow::cuda::DeviceBuffer<std::int32_t> lengths_;   // [most_tokens]
};

}  // namespace winnow::kvcache::cuda
