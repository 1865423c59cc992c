#include "kvcache/cuda/token_attention.h"

#include <algorithm>

namespace winnow::kvcache::cuda {

TokenAttention::TokenAttention(const DeviceCache& cache, int most_batch,
                               parallel::cuda::DeviceRanks* ranks)
    : cache_(cache) {
  const CacheShape& shape = cache.shape();
  if (cache.drops_each()) {
    score_eviction_.emplace(cache, most_batch, ranks);
  } else if (cache.selects()) {
    quest_.emplace(cache, most_batch, shape.layers);
  }
  if (cache.has_fast_attention() && !score_eviction_ && !quest_) {
    plan_.emplace(cache.layout(), shape.group, shape.kv_heads, most_batch, shape.layers);
  } else {
    general_.emplace(cache.layout(), shape.most_group(), shape.most_kv_heads(), most_batch);
  }
  if (cache.merges()) {
    open_scores_ = winnow::cuda::DeviceBuffer<float>(
        static_cast<std::size_t>(most_batch * shape.most_kv_heads() * shape.most_group()));
  }
}

void TokenAttention::reserve() {
  if (score_eviction_) {
    score_eviction_->reserve();
  }
  if (quest_) {
    quest_->reserve();
  }
}

void TokenAttention::plan(const std::int32_t* slots, int batch, cudaStream_t stream,
                          bool count_reads) {
  slots_ = slots;
  if (plan_) {
    const CacheView& view = cache_.view();
    ops::cuda::DecodeEntries all = entries(view, 0);
    all.chunked = cache_.shape().chunked;
    plan_->make(all, view.row(1, 0, 0), batch, stream);
  }
  if (quest_) {
    quest_->plan(slots, batch, stream, count_reads);
  }
}

void TokenAttention::append_and_attend(const Projection& projection, const DecodeAppend& step,
                                       float scale, bf16* out, cudaStream_t stream,
                                       const float* sinks) const {
  DecodeAppend own = step;
  own.open_scores = open_scores_.data();
  append(cache_, projection, own, stream);
  const ops::cuda::AttentionLogits logits{
      .scale = scale, .soft_cap = cache_.shape().soft_cap, .sinks = sinks};
  const bool stores = !projection.queries_alone;
  if (cache_.drops_each(step.layer) && stores) {
    score_eviction_->attend(own, logits, out, stream);
  } else if (cache_.selects(step.layer)) {
    quest_->attend(own, logits, stores, out, stream);
  } else {
    attend_to_all(own, logits, out, stream);
  }
}

void TokenAttention::attend_to_all(const DecodeAppend& step,
                                   const ops::cuda::AttentionLogits& logits, bf16* out,
                                   cudaStream_t stream) const {
  const ops::cuda::DecodeEntries all = entries(cache_.view(step.layer), step.layer);
  if (plan_) {
    plan_->attend(step.layer, all, logits.scale, step.queries, out, stream);
  } else {
    general_->attend(all, step.batch, logits, step.queries, out, stream);
  }
}

void TokenAttention::tell_reads(std::span<const std::int32_t> slots,
                                std::span<const ops::Matrix<std::int32_t>> visible) const {
  const std::vector<std::int32_t> reads = quest_->reads();
  const CacheShape& shape = cache_.shape();
  for (std::size_t i = 0; i < visible.size(); ++i) {
    for (int layer = 0; visible[i].data != nullptr && layer < shape.layers; ++layer) {
      const auto heads = static_cast<std::size_t>(shape.kv_heads_of(layer));
      std::int32_t* to = visible[i].data + shape.heads_before(layer);
      if (cache_.selects(layer)) {
        const std::size_t first = static_cast<std::size_t>(layer) * quest_->reads_stride();
        std::copy_n(&reads[first + i * heads], heads, to);
      } else {
        std::fill_n(to, heads, shape.dense_entries(layer, cache_.length(slots[i])));
      }
    }
  }
}

ops::cuda::DecodeEntries TokenAttention::entries(const CacheView& view, int layer) const {
  const std::size_t row = view.row(layer, 0, 0);
  ops::cuda::DecodeEntries entries{.pool = view.pool,
                                   .archive_pages = view.archive_pages + row * view.archive_stride,
                                   .archive_stride = view.archive_stride,
                                   .archive_counts = view.archive_counts + row,
                                   .window_pages = view.window_pages + row * view.window_stride,
                                   .window_stride = view.window_stride,
                                   .lengths = view.lengths,
                                   .window = view.ring - 1,
                                   .rings = view.rings,
                                   .reaches = view.reaches,
                                   .chunked = view.chunked,
                                   .slots = slots_,
                                   .kv_heads = cache_.shape().kv_heads_of(layer),
                                   .table_heads = view.kv_heads,
                                   .group = cache_.shape().group_of(layer)};
  entries.settled = !cache_.limits_archive(layer);  // the token may take any entry's place
  if (cache_.merges(layer)) {
    entries.open_values =
        view.open_values + row * static_cast<std::size_t>(cache_.layout().head_dim());
    entries.open_scores = open_scores_.data();
  }
  return entries;
}

}  // namespace winnow::kvcache::cuda
