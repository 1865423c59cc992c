// One token of each of several sequences through a model on a device: a captured graph.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/cuda/graph.h"
#include "kvcache/cuda/token_attention.h"
#include "model/cuda/device_model.h"
#include "model/cuda/output_head.h"
#include "model/cuda/skinny_layers.h"
#include "model/cuda/step_tokens.h"
#include "model/cuda/whole_step/whole_step.h"
#include "ops/cuda/linear/skinny_gemm.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

class Decode {
 public:
  /// Most sequences of one step on this device.
  static int most_sequences() { return SkinnyLayers::most(); }

  Decode(const DeviceModel& model, kvcache::cuda::DeviceCache& cache, OutputHead& head);

  /// Appends tokens[i] to the sequence in slots[i], and chooses next[i] as rows[i] says, without
  /// `rows` the most likely token. `logits` [batch, vocab] and `next` [batch] may be empty. Quest:
  /// visible[i] [1, layers * kv_heads], unless it is empty, receives how many entries were read.
  /// Waits for the results.
  void run(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens,
           std::span<const ops::cuda::SampledRow> rows, ops::Matrix<float> logits,
           std::span<std::int32_t> next, std::span<const ops::Matrix<std::int32_t>> visible,
           const winnow::cuda::Stream& stream);

 private:
  // What a step is captured for.
  struct Shape {
    int batch;
    bool with_logits;
    bool with_reads;
    kvcache::cuda::TokenAttention::Way way;
    std::optional<WholeStep::Rows> chained;  // if it is one kernel
    bool planned;
    auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): misread
  };

  // All layers of a step, as WholeStep takes them.
  struct WholeStepLayers {
    std::vector<ops::cuda::SkinnyGemm> linear;
    std::vector<kvcache::cuda::Projection> projections;
    [[nodiscard]] WholeStep::Layers view() const { return {linear, projections}; }
  };

  [[nodiscard]] bool is_planned(std::span<const std::int32_t> slots) const;
  [[nodiscard]] std::int64_t lengths_of(std::span<const std::int32_t> slots) const;
  void capture(const Shape& shape, cudaStream_t stream);
  void run_layers(int batch, bool with_logits, cudaStream_t stream);
  void attention(int layer, int batch, cudaStream_t stream);
  [[nodiscard]] std::array<ops::cuda::SkinnyGemm, 4> layers_behind(int attention,
                                                                   bool with_logits) const;
  [[nodiscard]] WholeStepLayers whole_step_layers(bool with_logits) const;

  const DeviceModel& model_;
  kvcache::cuda::DeviceCache& cache_;
  OutputHead& head_;
  kvcache::cuda::TokenAttention attention_;
  std::optional<WholeStep> whole_step_;  // where there is a kernel for it
  SkinnyLayers rows_;
  // Of the last planned step, if it was one in one kernel.
  std::vector<std::int32_t> planned_slots_;
  std::int64_t planned_lengths_ = 0;
  int generation_ = -1;  // of the cache's tables that the graphs point to
  std::map<Shape, winnow::cuda::Graph> graphs_;

  winnow::cuda::PinnedBuffer<std::int32_t> inputs_;  // [2, batch] slots, tokens
  StepTokens results_;                               // [batch]
  winnow::cuda::DeviceBuffer<std::int32_t> slots_;   // [batch]
  winnow::cuda::DeviceBuffer<float2> angles_;        // [batch, head_dim / 2]
  winnow::cuda::DeviceBuffer<float> qkv_;            // [batch, qkv_width]
  winnow::cuda::DeviceBuffer<float> queries_;        // [batch, query_width]
  winnow::cuda::DeviceBuffer<bf16> attended_;        // [batch, query_width]
};

}  // namespace winnow::model::cuda
