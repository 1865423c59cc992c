// Prompts through a model on a device, many tokens at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcache/cuda/append.h"
#include "model/cuda/device_model.h"
#include "model/cuda/many_rows.h"
#include "model/cuda/output_head.h"
#include "ops/matrix.h"

namespace winnow::model::cuda {

/// The next tokens of the sequence in `slot`.
struct PromptChunk {
  int slot = 0;
  std::span<const std::int32_t> tokens;
  std::size_t logit_rows = 0;  // logits of the last ones
  /// Optional [T, layers * kv_heads]: receives how many entries each token's query saw.
  ops::Matrix<std::int32_t> visible;
};

class Prefill {
 public:
  Prefill(const DeviceModel& model, const MatrixWeights& matrices,
          kvcache::cuda::DeviceCache& cache, OutputHead& head);

  /// Appends all chunks. `logits` [sum of logit_rows, vocab] and `tokens` [sum of logit_rows],
  /// which `rows` [as many] choose, may be empty; without `rows` they are the most likely ones.
  /// Waits for the results.
  void run(std::span<const PromptChunk> chunks, std::span<const ops::cuda::SampledRow> rows,
           ops::Matrix<float> logits, std::span<std::int32_t> tokens,
           const winnow::cuda::Stream& stream);

 private:
  void reserve(std::size_t tokens, int longest_chunk);
  std::size_t upload(std::span<const PromptChunk> chunks, cudaStream_t stream);
  void embed(std::size_t tokens, cudaStream_t stream);
  void attention(int layer, std::span<const PromptChunk> chunks, std::size_t tokens,
                 const winnow::cuda::Stream& stream);
  void read_visible(int layer, const PromptChunk& chunk, const winnow::cuda::Stream& stream) const;

  const DeviceModel& model_;
  kvcache::cuda::DeviceCache& cache_;
  OutputHead& head_;
  ManyRows rows_;
  std::unique_ptr<kvcache::cuda::Band> band_;
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;     // [T]
  winnow::cuda::DeviceBuffer<std::int32_t> positions_;  // [T]
  winnow::cuda::DeviceBuffer<std::int32_t> wanted_;     // [rows] whose logits are wanted
  winnow::cuda::DeviceBuffer<float2> angles_;           // [T, head_dim / 2]
  winnow::cuda::DeviceBuffer<bf16> qkv_;                // [T, qkv_width]
  winnow::cuda::DeviceBuffer<bf16> queries_;            // [T, query_width]
  winnow::cuda::DeviceBuffer<bf16> attended_;           // [T, query_width]
  winnow::cuda::DeviceBuffer<std::byte> attention_scratch_;
};

}  // namespace winnow::model::cuda
