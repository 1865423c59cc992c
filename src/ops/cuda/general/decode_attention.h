// Decode attention on the device for every head dimension, group and kind of logits: the fallback
// where DecodePlan has no kernel.
#pragma once

#include "base/cuda/device.h"
#include "base/dtype.h"
#include "ops/cuda/decode/decode_attention.h"
#include "ops/cuda/general/attention_logits.h"
#include "ops/cuda/pages/kv_page.h"

namespace winnow::ops::cuda {

/// One query token per sequence over the pages of DecodeEntries, in two kernels. Each row's pages
/// are divided into the same number of splits, which depends only on the batch, so that a step can
/// be captured in a graph; the second kernel adds the splits up. Nothing is planned beforehand:
/// both kernels read tables, counts and lengths only after the preceding kernels are complete, the
/// new token has been stored and its layer's counts have advanced.
class GeneralDecodeAttention {
 public:
  /// For up to `most_batch` sequences of up to kv_heads heads with up to `group` query heads each.
  GeneralDecodeAttention(const DevicePageLayout& layout, int group, int kv_heads, int most_batch);

  /// out = softmax(logits) values of `batch` sequences, query and out [batch, kv_heads * group *
  /// head_dim]. If entries are rotated (q4), queries must be rotated, and outputs are rotated back.
  /// The open entry's products become logits like all others. A row without entries gets zeros.
  /// Products and sums are in float.
  void attend(const DecodeEntries& entries, int batch, const AttentionLogits& logits,
              const float* query, bf16* out, cudaStream_t stream) const;
  void attend(const DecodeEntries& entries, int batch, const AttentionLogits& logits,
              const float* query, float* out, cudaStream_t stream) const;

 private:
  void attend_to(const DecodeEntries& entries, int batch, const AttentionLogits& logits,
                 const float* query, void* out, bool bf16_out, cudaStream_t stream) const;
  [[nodiscard]] int splits_of(int batch, int kv_heads, int group) const;
  [[nodiscard]] std::size_t most_splits() const;

  DevicePageLayout layout_;
  int group_;
  int kv_heads_;
  int most_batch_;
  int blocks_;  // enough to keep the device busy
  winnow::cuda::DeviceBuffer<float> partial_out_;
  winnow::cuda::DeviceBuffer<float2> partial_sums_;
};

}  // namespace winnow::ops::cuda
