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
  /// For up to `most_tokens` tokens at once; `layers` of them follow one plan.
  QuestAttention(const DeviceCache& cache, int most_tokens, int layers);

  /// Makes room for what the cache's tables have room for. To be called when they have grown.
  void reserve();

  /// Bounds of the pages that append() has just put a chunk's entries on, in a full layer.
  void renew_bounds(const PrefillAppend& chunk, cudaStream_t stream) const;

  /// Plans a step of one token of each of `batch` sequences, all layers; `count_reads`: for
  /// reads().
  void plan(const std::int32_t* slots, int batch, cudaStream_t stream, bool count_reads = false);
  /// Whether plan() puts something into the stream.
  [[nodiscard]] bool has_plan() const { return plan_.has_value(); }
  /// Attends in a full layer for those tokens, which append() has just taken. `counts`: its reads
  /// are those of reads(), if they are asked for. out [batch, heads * head_dim].
  void attend(const DecodeAppend& step, const ops::cuda::AttentionLogits& logits, bool counts,
              bf16* out, cudaStream_t stream) const;
  /// Entries that the queries of a layer's KV heads read between them, of a step that is over: per
  /// layer reads_stride() values, of which the first are [batch, KV heads of the layer].
  [[nodiscard]] std::vector<std::int32_t> reads() const;
  [[nodiscard]] std::size_t reads_stride() const {
    return static_cast<std::size_t>(most_tokens_ * cache_.shape().most_kv_heads());
  }

  /// Attends for a chunk, which append() and renew_bounds() have just taken, a few tokens at a
  /// time. out [tokens, heads * head_dim]. `visible` [tokens, kv_heads], unless it is empty,
  /// receives how many entries a KV head's queries read between them.
  void attend(const PrefillAppend& chunk, const ops::cuda::AttentionLogits& logits, bf16* out,
              std::span<std::int32_t> visible, cudaStream_t stream);

 private:
  void plan(const QuestTokens& tokens, cudaStream_t stream);
  [[nodiscard]] QuestLayer layer(int index) const;
  // Attends for the planned tokens, whose pages have bounds already. `place`: of the layer in the
  // plan.
  template <class Query>
  void attend_to_best(const QuestLayer& layer, int place, const ops::cuda::AttentionLogits& logits,
                      const Query* queries, bf16* out, cudaStream_t stream) const;
  void attend_to_chosen(const QuestLayer& layer, int place,
                        const ops::cuda::AttentionLogits& logits, const float* queries, bf16* out,
                        cudaStream_t stream) const;
  [[nodiscard]] QuestChoice choice() const;

  const DeviceCache& cache_;
  int heads_;  // query heads of the layer that has most
  int most_tokens_;
  QuestTokens tokens_;         // that are planned
  bool counts_reads_ = false;  // of those
  // One of them:
  std::optional<ops::cuda::DecodePlan> plan_;
  std::optional<ops::cuda::GeneralDecodeAttention> general_;
  winnow::cuda::DeviceBuffer<std::int32_t> in_order_;  // [most_tokens] 0, 1, 2 ...
  winnow::cuda::DeviceBuffer<std::int32_t> entries_;   // [most_tokens, heads]
  winnow::cuda::DeviceBuffer<std::int32_t> planned_;   // [most_tokens, heads]
  winnow::cuda::DeviceBuffer<std::uint32_t> pages_;    // [most_tokens, heads, pages]
  winnow::cuda::DeviceBuffer<float> bounds_;           // [most_tokens, heads, pages]
  winnow::cuda::DeviceBuffer<float> queries_;          // [most_tokens, heads, head_dim]
  winnow::cuda::DeviceBuffer<std::int32_t> reads_;     // [layers, reads_stride()]
};

}  // namespace winnow::kvcache::cuda
