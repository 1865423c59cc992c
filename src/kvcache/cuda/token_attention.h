// Appending and attending for one token of each of several sequences, under any rule.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <span>

#include "kvcache/cuda/append/append.h"
#include "kvcache/cuda/quest/quest.h"
#include "kvcache/cuda/score_eviction/score_eviction.h"
#include "ops/cuda/decode/decode_attention.h"
#include "ops/cuda/general/decode_attention.h"
#include "ops/matrix.h"

namespace winnow::kvcache::cuda {

/// Order of a step: plan(); for each layer, append_and_attend(); last, lengths advance. All of it
/// can be captured in a graph, which holds as long as the cache's generation().
class TokenAttention {
 public:
  /// For steps of up to `most_batch` sequences.
  TokenAttention(const DeviceCache& cache, int most_batch);

  /// Makes room for what the cache's tables have room for. To be called before a step is put into a
  /// stream, when they have grown.
  void reserve();

  /// Those of the DecodePlan, where queries see everything.
  [[nodiscard]] ops::cuda::DecodePlan::RowPages row_pages() const {
    return plan_ ? plan_->row_pages() : ops::cuda::DecodePlan::RowPages{};
  }

  /// Plans a step of the sequences in slots[batch] (device memory); `count_reads`: for
  /// tell_reads(), Quest only.
  void plan(const std::int32_t* slots, int batch, cudaStream_t stream, bool count_reads = false);
  /// Whether plan() puts something into the stream.
  [[nodiscard]] bool has_plan() const { return plan_ || (quest_ && quest_->has_plan()); }

  /// Appends the tokens of `step`, attends, and drops what they make leave. `scale`: of the scores;
  /// `sinks`: of the layer's query heads, if they have any. out [batch, heads * head_dim].
  void append_and_attend(const Projection& projection, const DecodeAppend& step, float scale,
                         bf16* out, cudaStream_t stream, const float* sinks = nullptr) const;

  /// How many entries the tokens of a step read that is over, and was planned to count them:
  /// visible[i] [1, layers * kv_heads] of the i-th, unless it is empty.
  /// `slots`: of the step, whose lengths have moved on.
  void tell_reads(std::span<const std::int32_t> slots,
                  std::span<const ops::Matrix<std::int32_t>> visible) const;

 private:
  void attend_to_all(const DecodeAppend& step, const ops::cuda::AttentionLogits& logits, bf16* out,
                     cudaStream_t stream) const;
  // `view`: of the layer, or (plans) of all.
  [[nodiscard]] ops::cuda::DecodeEntries entries(const CacheView& view, int layer) const;

  const DeviceCache& cache_;
  const std::int32_t* slots_ = nullptr;  // of the planned step
  // Queries that see everything: the one that takes the shape. Where entries of some layers leave
  // or are chosen, the general one takes the others.
  std::optional<ops::cuda::DecodePlan> plan_;
  std::optional<ops::cuda::GeneralDecodeAttention> general_;
  // Full layers of rules that need it:
  std::optional<ScoreEvictionAttention> score_eviction_;  // TOVA, H2O
  std::optional<QuestAttention> quest_;                   // Quest
  winnow::cuda::DeviceBuffer<float> open_scores_;         // [most_batch, heads] DMC
};

}  // namespace winnow::kvcache::cuda
