// Prompts through a model on a device, many tokens at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvcache/cuda/append.h"
#include "model/cuda/device_model.h"
#include "model/cuda/matrix_weights.h"
#include "model/cuda/output_head.h"
#include "ops/cuda/linear.h"
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
  Prefill(const DeviceModel& model, kvcache::cuda::DeviceCache& cache, OutputHead& head);

  /// Appends all chunks. `logits` [sum of logit_rows, vocab] and `best` [sum of logit_rows] may be
  /// empty. Waits for the results.
  void run(std::span<const PromptChunk> chunks, ops::Matrix<float> logits,
           std::span<std::int32_t> best, const winnow::cuda::Stream& stream);

 private:
  void reserve(std::size_t tokens, int longest_chunk);
  std::size_t upload(std::span<const PromptChunk> chunks, cudaStream_t stream);
  void embed(std::size_t tokens, cudaStream_t stream);
  void attention(int layer, std::span<const PromptChunk> chunks, std::size_t tokens,
                 const winnow::cuda::Stream& stream);
  [[nodiscard]] int window_of(int slot) const;
  void finish_layer(int layer, std::size_t rows, cudaStream_t stream);
  void keep_logit_rows(std::size_t rows, cudaStream_t stream);
  void read_visible(int layer, const PromptChunk& chunk, const winnow::cuda::Stream& stream) const;

  const DeviceModel& model_;
  kvcache::cuda::DeviceCache& cache_;
  OutputHead& head_;
  ops::cuda::Linear linear_;
  MatrixWeights matrices_;
  std::unique_ptr<kvcache::cuda::Band> band_;
  winnow::cuda::DeviceBuffer<std::int32_t> tokens_;     // [T]
  winnow::cuda::DeviceBuffer<std::int32_t> positions_;  // [T]
  winnow::cuda::DeviceBuffer<std::int32_t> wanted_;     // [rows] whose logits are wanted
  winnow::cuda::DeviceBuffer<float2> angles_;           // [T, head_dim / 2]
  winnow::cuda::DeviceBuffer<float> hidden_;            // [T, hidden] the residual stream
  winnow::cuda::DeviceBuffer<float> square_sums_;       // [T] of the embeddings; not used
  winnow::cuda::DeviceBuffer<bf16> normed_;             // [T, hidden]
  winnow::cuda::DeviceBuffer<bf16> qkv_;                // [T, qkv_width]
  winnow::cuda::DeviceBuffer<bf16> queries_;            // [T, query_width]
  winnow::cuda::DeviceBuffer<bf16> attended_;           // [T, query_width]
  winnow::cuda::DeviceBuffer<bf16> gate_up_;            // [T, 2 * intermediate]
  winnow::cuda::DeviceBuffer<bf16> activated_;          // [T, intermediate]
  winnow::cuda::DeviceBuffer<std::byte> attention_scratch_;
};

}  // namespace winnow::model::cuda
