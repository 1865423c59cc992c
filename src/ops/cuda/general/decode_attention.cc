#include "ops/cuda/general/decode_attention.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/general/decode_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kMostSplits = 128;  // per row: the second kernel reads every split's result

std::size_t size(int n) {
  return static_cast<std::size_t>(n);
}

}  // namespace

GeneralDecodeAttention::GeneralDecodeAttention(const DevicePageLayout& layout, int group,
                                               int kv_heads, int most_batch)
    : layout_(layout), group_(group), kv_heads_(kv_heads), most_batch_(most_batch) {
  require(group >= 1 && kv_heads >= 1 && most_batch >= 1,
          "decode attention: {} KV heads of {} query heads each, {} sequences", kv_heads, group,
          most_batch);
  blocks_ = kBlocksPerMultiprocessor * winnow::cuda::multiprocessor_count();
  partial_out_ = winnow::cuda::DeviceBuffer<float>(most_splits() * size(layout.head_dim()));
  partial_sums_ = winnow::cuda::DeviceBuffer<float2>(most_splits());
}

int GeneralDecodeAttention::splits_of(int batch, int kv_heads, int group) const {
  return std::clamp(blocks_ / (batch * kv_heads * head_blocks(group)), 1, kMostSplits);
}

// Splits of all rows, for any batch: a row has one, or the splits just keep the device busy.
std::size_t GeneralDecodeAttention::most_splits() const {
  return std::max(size(most_batch_ * kv_heads_), size(blocks_)) * size(group_);
}

void GeneralDecodeAttention::attend_to(const DecodeEntries& entries, int batch,
                                       const AttentionLogits& logits, const float* query, void* out,
                                       bool bf16_out, cudaStream_t stream) const {
  require(batch >= 0 && batch <= most_batch_, "decode attention: {} sequences, room for {}", batch,
          most_batch_);
  const int group = entries.group > 0 ? entries.group : group_;
  require(entries.kv_heads <= kv_heads_ && group <= group_,
          "decode attention: {} KV heads of {} query heads each, made for {} of {}",
          entries.kv_heads, group, kv_heads_, group_);
  if (batch == 0) {
    return;
  }
  const GeneralDecodeArguments arguments{entries,
                                         logits,
                                         query,
                                         out,
                                         bf16_out,
                                         batch,
                                         group,
                                         layout_.head_dim(),
                                         layout_.page_bytes(),
                                         splits_of(batch, entries.kv_heads, group),
                                         partial_out_.data(),
                                         partial_sums_.data()};
  launch_general_decode(layout_.format(), arguments, stream);
  launch_general_decode_reduce(layout_.format(), arguments, stream);
}

void GeneralDecodeAttention::attend(const DecodeEntries& entries, int batch,
                                    const AttentionLogits& logits, const float* query, bf16* out,
                                    cudaStream_t stream) const {
  attend_to(entries, batch, logits, query, out, true, stream);
}

void GeneralDecodeAttention::attend(const DecodeEntries& entries, int batch,
                                    const AttentionLogits& logits, const float* query, float* out,
                                    cudaStream_t stream) const {
  attend_to(entries, batch, logits, query, out, false, stream);
}

}  // namespace winnow::ops::cuda
