// One token of each of many sequences through a model on a device: captured graphs for a few batch
// sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "base/cuda/graph.h"
#include "kvcache/cuda/token_attention.h"
#include "model/cuda/device_model.h"
#include "model/cuda/large_batch_layers.h"
#include "model/cuda/small_batch_layers.h"
#include "model/cuda/step_tokens.h"
#include "ops/cuda/sampling/sampling.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

/// What Decode does for few sequences, whose linear layers it takes from one reading of the weights
/// by kernels made for few rows. Here they are SmallBatchLayers', and of more rows cuBLASLt's. A
/// batch is padded up to the next size that there is a graph for; what pads it belongs to no
/// sequence, is written nowhere in the cache and reads nothing of it.
class BatchDecode {
 public:
  /// For up to `most_sequences`. All must outlive this. The cache's rule must be one under which
  /// queries see everything: the others' kernels know no padding.
  BatchDecode(const DeviceModel& model, const MatrixWeights& matrices,
              kvcache::cuda::DeviceCache& cache, int most_sequences);

  /// Fewer are computed sooner by Decode.
  static int least_sequences(const DeviceModel& model);
  [[nodiscard]] int least_sequences() const { return least_; }
  [[nodiscard]] int most_sequences() const { return most_; }

  /// Appends tokens[i] to the sequence in slots[i], and chooses next[i] as rows[i] says, without
  /// `rows` the most likely token. `logits` [batch, vocab] and `next` [batch] may be empty. Waits
  /// for the results.
  void run(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens,
           std::span<const ops::cuda::SampledRow> rows, ops::Matrix<float> logits,
           std::span<std::int32_t> next, const winnow::cuda::Stream& stream);

 private:
  void fill_inputs(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens,
                   std::span<const ops::cuda::SampledRow> rows, int size);
  const winnow::cuda::Graph& graph(int size, const winnow::cuda::Stream& stream);
  void step(int size, cudaStream_t stream);
  template <class LinearLayers>
  void step_by(LinearLayers& linear, int size, cudaStream_t stream);

  const DeviceModel& model_;
  kvcache::cuda::DeviceCache& cache_;
  int least_;
  int most_;
  kvcache::cuda::TokenAttention attention_;
  LargeBatchLayers many_;
  std::optional<SmallBatchLayers> rows_;  // of up to SmallBatchLayers::kMost
  int generation_ = -1;                   // of the cache's tables that the graphs point to
  std::map<int, winnow::cuda::Graph> graphs_;

  winnow::cuda::PinnedBuffer<std::int32_t> inputs_;          // [2, size] slots, tokens
  winnow::cuda::PinnedBuffer<ops::cuda::SampledRow> rules_;  // [size]
  StepTokens results_;                                       // [batch]
  winnow::cuda::DeviceBuffer<std::int32_t> slots_;           // [size]
  winnow::cuda::DeviceBuffer<float2> angles_;                // [size, head_dim / 2]
  winnow::cuda::DeviceBuffer<float> qkv_;                    // [size, qkv_width]
  winnow::cuda::DeviceBuffer<float> queries_;                // [size, query_width]
  winnow::cuda::DeviceBuffer<bf16> attended_;                // [size, query_width]
  winnow::cuda::DeviceBuffer<float> logits_;                 // [size, vocab]
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;          // [size]
};

}  // namespace winnow::model::cuda
