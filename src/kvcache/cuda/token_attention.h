// Appends one token of each of several sequences and computes its attention, under any rule.
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

/// Order of a step: plan(); append_and_attend() for each layer; then lengths advance. All of it can
/// be captured in a graph, which is valid as long as the cache's generation() is the same.
class TokenAttention {
 public:
  /// For steps of up to `most_batch` sequences. `ranks`: those that share the model's heads, or
  /// null; all of them make one.
  TokenAttention(const DeviceCache& cache, int most_batch,
                 parallel::cuda::DeviceRanks* ranks = nullptr);

  /// Grows buffers to match the cache's tables. To be called when those have grown, before a step
  /// is put into a stream.
  void reserve();

  /// The row pages of the DecodePlan, where queries see everything.
  [[nodiscard]] ops::cuda::DecodePlan::RowPages row_pages() const {
    return plan_ ? plan_->row_pages() : ops::cuda::DecodePlan::RowPages{};
  }

  /// Plans a step of the sequences in slots[batch] (device memory). `count_reads`: Quest only, the
  /// step also counts what tell_reads() returns.
  void plan(const std::int32_t* slots, int batch, cudaStream_t stream, bool count_reads = false);
  /// Whether plan() puts any work into the stream.
  [[nodiscard]] bool has_plan() const { return plan_ || (quest_ && quest_->has_plan()); }

  /// Appends the tokens of `step`, computes attention, and drops entries over the budget. `scale`:
  /// of the scores; `sinks`: of the layer's query heads, if any. out [batch, heads * head_dim].
  void append_and_attend(const Projection& projection, const DecodeAppend& step, float scale,
                         bf16* out, cudaStream_t stream, const float* sinks = nullptr) const;

  /// Writes how many entries each token of a completed step read, if it was planned to count them:
  /// visible[i] [1, layers * kv_heads] for token i, unless it is empty.
  /// `slots`: the slots of the step, whose lengths have advanced.
  void tell_reads(std::span<const std::int32_t> slots,
                  std::span<const ops::Matrix<std::int32_t>> visible) const;

 private:
  void attend_to_all(const DecodeAppend& step, const ops::cuda::AttentionLogits& logits, bf16* out,
                     cudaStream_t stream) const;
  // `view`: of the layer or, for plans, of all layers.
  [[nodiscard]] ops::cuda::DecodeEntries entries(const CacheView& view, int layer) const;

  const DeviceCache& cache_;
  const std::int32_t* slots_ = nullptr;  // of the planned step
  // Queries that see everything use the first of these that supports the shape. If entries of some
  // layers are dropped or chosen, the general one handles the other layers.
  std::optional<ops::cuda::DecodePlan> plan_;
  std::optional<ops::cuda::GeneralDecodeAttention> general_;
  // For full layers of rules that need them:
  std::optional<ScoreEvictionAttention> score_eviction_;  // each token may drop an entry
  std::optional<QuestAttention> quest_;                   // queries choose pages
  winnow::cuda::DeviceBuffer<float> open_scores_;         // [most_batch, heads] DMC
};

}  // namespace winnow::kvcache::cuda
