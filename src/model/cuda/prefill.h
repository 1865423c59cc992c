// Prefill on a device: many tokens of prompts at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvcache/cuda/append/append.h"
#include "kvcache/cuda/quest/quest.h"
#include "kvcache/cuda/score_eviction/rounds.h"
#include "kvcache/cuda/score_eviction/score_eviction.h"
#include "model/cuda/device_lora.h"
#include "model/cuda/device_model.h"
#include "model/cuda/fast_paths.h"
#include "model/cuda/kept_bands.h"
#include "model/cuda/layer_walk.h"
#include "model/cuda/output_head.h"
#include "model/cuda/stream_rows.h"
#include "model/stream_states.h"
#include "ops/cuda/general/attention_logits.h"
#include "ops/cuda/general/decode_attention.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

/// The next tokens of the sequence in `slot`.
struct PromptChunk {
  int slot = 0;
  std::span<const std::int32_t> tokens;
  std::size_t logit_rows = 0;  // logits of the last tokens
  /// Optional [T, layers with entries * kv_heads]: receives how many entries each token's query
  /// attended to.
  ops::Matrix<std::int32_t> visible;
  /// Optional [hidden], needs logits: receives the last token's state after the final norm.
  std::span<float> state = {};
  const DeviceLora* adapter = nullptr;  // optional
  StreamStates stream = {};             // optional: receives the states of its tokens
  HeadInput input = {};                 // of a head that drafts: as all chunks of a call
};

class Prefill {
 public:
  Prefill(const DeviceModel& model, const MatrixWeights& matrices,
          kvcache::cuda::DeviceCache& cache, OutputHead& head);

  /// Appends all chunks. They run token by token if layers share entries that the cache's rule may
  /// evict or select. `logits` [sum of logit_rows, vocab] and `tokens` [sum of logit_rows], chosen
  /// by `rows` [as many], may be empty; without `rows`, they are the most likely ones. Waits for
  /// the results.
  void run(std::span<const PromptChunk> chunks, std::span<const RowChoice> rows,
           ops::Matrix<float> logits, std::span<std::int32_t> tokens,
           const winnow::cuda::Stream& stream);
  /// The name of the path that the last call took; empty before the first call.
  [[nodiscard]] std::string_view last_path() const { return last_path_; }

 private:
  // Whether all tokens of the chunk can attend in one call: see rows_at_once().
  [[nodiscard]] bool takes_at_once(const PromptChunk& chunk) const;
  void run_together(std::span<const PromptChunk> chunks, std::span<const RowChoice> rows,
                    ops::Matrix<float> logits, std::span<std::int32_t> tokens,
                    const winnow::cuda::Stream& stream);
  void run_by_token(std::span<const PromptChunk> chunks, std::span<const RowChoice> rows,
                    ops::Matrix<float> logits, std::span<std::int32_t> tokens,
                    const winnow::cuda::Stream& stream);
  // Inputs of attention for a layer's tokens.
  struct LayerInput {
    const float* hidden;         // [T, hidden]
    kvcache::cuda::QkvRows qkv;  // [T, qkv_width]
  };

  // Tokens of one sequence in one layer, and the row of their first activations.
  struct Rows {
    LayerInput input;
    int layer;     // in the model
    int in_cache;  // in the cache
    int slot;
    int length;  // of the sequence before these tokens
    int tokens;
    int first_out;  // no attention output is wanted for tokens before it
    std::size_t first;

    [[nodiscard]] Rows slice(int begin, int end) const {
      return {input,
              layer,
              in_cache,
              slot,
              length + begin,
              end - begin,
              std::clamp(first_out, begin, end) - begin,
              first + static_cast<std::size_t>(begin)};
    }
    // The rows of these tokens in a matrix, which may be null.
    template <class T>
    [[nodiscard]] T* of(T* matrix, int width) const {
      return matrix == nullptr ? nullptr : matrix + first * static_cast<std::size_t>(width);
    }
  };

  void reserve(LinearPath& linear, std::size_t tokens, int longest_chunk);
  std::size_t upload(std::span<const PromptChunk> chunks, cudaStream_t stream);
  /// Uploads what a head that drafts takes beside tokens.
  void upload_states(LinearPath& linear, std::span<const PromptChunk> chunks, std::size_t rows,
                     cudaStream_t stream);
  /// Prepares handed_ for what chunks want of the stream.
  void reserve_handed(std::span<const PromptChunk> chunks, std::size_t rows);
  [[nodiscard]] ops::cuda::RecurrentRows recurrent_rows(std::span<const PromptChunk> chunks) const;
  ops::cuda::SkinnyInput run_layers(LinearPath& linear, std::span<const PromptChunk> chunks,
                                    int tokens, int wanted, bool adapts,
                                    const winnow::cuda::Stream& stream);
  /// Uploads the adapters of all rows and, after them, those of the wanted rows.
  void put_adapters(std::span<const PromptChunk> chunks, cudaStream_t stream);
  /// Copies rows of `hidden` to the states that chunks ask for, and those between layers.
  void read_states(const float* hidden, std::span<const PromptChunk> chunks,
                   cudaStream_t stream) const;

  // prefill_attention.cc
  // How many of a chunk's first tokens attend at once: their visible entries are known before.
  [[nodiscard]] int rows_at_once(int layer, int slot, int tokens) const;
  [[nodiscard]] int window_of(int layer, int slot) const;
  void attend(int layer, const LayerInput& input, const PromptChunk& chunk, std::size_t first,
              const winnow::cuda::Stream& stream);
  [[nodiscard]] int rows_within_reach(const Rows& all, int first, int end) const;
  [[nodiscard]] Rows first_piece(const Rows& rows, bool& has_room,
                                 const winnow::cuda::Stream& stream) const;
  [[nodiscard]] int rows_with_room(const Rows& rows, const winnow::cuda::Stream& stream) const;
  void attend_at_once(const Rows& rows, ops::Matrix<std::int32_t> visible,
                      const winnow::cuda::Stream& stream);
  void attend_to_all(const Rows& rows, const bf16* queries, const kvcache::cuda::Band& band,
                     const winnow::cuda::Stream& stream);
  void attend_to_source(const Rows& rows, const winnow::cuda::Stream& stream);
  void attend_to_rest(const Rows& rows, const winnow::cuda::Stream& stream);
  void choose_and_attend(const Rows& rows, int first, ops::Matrix<std::int32_t> visible,
                         const winnow::cuda::Stream& stream);
  [[nodiscard]] kvcache::cuda::Projection projection_of(const Rows& rows) const;
  [[nodiscard]] kvcache::cuda::PrefillAppend append_of(const Rows& rows) const;
  [[nodiscard]] bf16* out_of(const Rows& rows) const;
  [[nodiscard]] ops::cuda::AttentionLogits logits_of(int layer) const;
  void note_visible(ops::Matrix<std::int32_t> visible, int layer, int token, int head,
                    int entries) const;

  const DeviceModel& model_;
  kvcache::cuda::DeviceCache& cache_;
  OutputHead& head_;
  LinearPaths paths_;
  std::string_view last_path_;
  std::unique_ptr<kvcache::cuda::Band> band_;  // of the current layer
  KeptBands source_bands_;
  StreamRows handed_;
  // For full layers of rules that need them:
  std::optional<kvcache::cuda::ScoreEvictionAttention> score_eviction_;  // each token may drop one
  std::optional<kvcache::cuda::RoundEviction> rounds_;                   // entries drop in rounds
  std::optional<kvcache::cuda::QuestAttention> quest_;                   // queries choose pages
  // For a token in a layer that shares entries, some of which were evicted.
  std::optional<ops::cuda::GeneralDecodeAttention> rest_;
  AdaptedRows adapted_;
  std::size_t most_tokens_ = 0;  // the most that ranks have made room for, in all and of a chunk
  int longest_chunk_ = 0;
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;     // [T]
  winnow::cuda::DeviceBuffer<std::int32_t> positions_;  // [T]
  winnow::cuda::DeviceBuffer<std::int32_t> wanted_;     // [rows] with logits
  // [chunks] slots, [chunks + 1] first rows, for models with recurrent layers.
  winnow::cuda::DeviceBuffer<std::int32_t> sequences_;
  winnow::cuda::DeviceBuffer<float> states_;        // [T, inputs or hidden], for heads that draft
  std::size_t angle_stride_ = 0;                    // elements between tables of angles
  winnow::cuda::DeviceBuffer<float2> angles_;       // [tables, T, head_dim / 2]
  winnow::cuda::DeviceBuffer<bf16> qkv_;            // [T, qkv_width]
  winnow::cuda::DeviceBuffer<float> exact_qkv_;     // the same, for paths that write float
  winnow::cuda::DeviceBuffer<bf16> queries_;        // [T, query_width]
  winnow::cuda::DeviceBuffer<bf16> attended_;       // [T, mixer_width]
  winnow::cuda::DeviceBuffer<float> rest_queries_;  // [query_width]
  winnow::cuda::DeviceBuffer<std::byte> attention_scratch_;
};

}  // namespace winnow::model::cuda
