#include "kvcache/cuda/quest/quest.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

namespace winnow::kvcache::cuda {
namespace {

winnow::cuda::DeviceBuffer<std::int32_t> ascending(int count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(numbers));
}

int most_heads(const CacheShape& shape) {
  int most = 0;
  for (int layer = 0; layer < shape.layers; ++layer) {
    most = std::max(most, shape.kv_heads_of(layer) * shape.group_of(layer));
  }
  return most;
}

// Whether the fast kernels support attention with a row for every query head.
bool is_fast(const CacheShape& shape) {
  return shape.soft_cap == 0.0F && !shape.sinks && shape.heads.empty() &&
         ops::cuda::has_own_kernels(shape.head_dim, 1);
}

}  // namespace

QuestAttention::QuestAttention(const DeviceCache& cache, int most_tokens, int layers)
    : cache_(cache),
      heads_(most_heads(cache.shape())),
      most_tokens_(most_tokens),
      in_order_(ascending(most_tokens)),
      entries_(static_cast<std::size_t>(most_tokens * heads_)),
      planned_(entries_.size()),
      queries_(entries_.size() * static_cast<std::size_t>(cache.shape().head_dim)),
      reads_(static_cast<std::size_t>(layers) * reads_stride()),
      lengths_(static_cast<std::size_t>(most_tokens)) {
  if (is_fast(cache.shape()) && !has_window()) {
    plan_.emplace(cache.layout(), 1, heads_, most_tokens, layers);
  } else {
    general_.emplace(cache.layout(), 1, heads_, most_tokens);
  }
}

void QuestAttention::reserve() {
  pages_.ensure(entries_.size() * cache_.view().archive_stride);
  bounds_.ensure(entries_.size() * cache_.view().archive_stride);
  windows_.ensure(entries_.size() * cache_.view().window_stride);
}

QuestLayer QuestAttention::layer(int index) const {
  return {index, cache_.shape().kv_heads_of(index), cache_.shape().group_of(index)};
}

void QuestAttention::renew_bounds(const PrefillAppend& chunk, cudaStream_t stream) const {
  launch_renew_bounds(cache_.layout().format(), cache_.layout().head_dim(), cache_.view(),
                      layer(chunk.layer), {1, nullptr, chunk.slot, chunk.length}, chunk.tokens,
                      stream);
}

QuestChoice QuestAttention::choice() const {
  return {.pages = pages_.data(),
          .bounds = bounds_.data(),
          .stride = cache_.view().archive_stride,
          .entries = entries_.data(),
          .planned = planned_.data(),
          .queries = tokens_.slots == nullptr ? queries_.data() : nullptr,
          .page_entries = Rule(cache_.config(), {}).page_entries,
          .window_pages = has_window() ? windows_.data() : nullptr,
          .lengths = lengths_.data()};
}

void QuestAttention::plan(const std::int32_t* slots, int batch, cudaStream_t stream,
                          bool count_reads) {
  counts_reads_ = count_reads;
  plan({.batch = batch, .slots = slots}, stream);
}

// The attention kernels treat every query head of every token as a row of its own, whose archive is
// the pages that it has chosen. The number of entries is the same in all layers.
void QuestAttention::plan(const QuestTokens& tokens, cudaStream_t stream) {
  tokens_ = tokens;
  if (tokens.batch == 0 || !plan_) {
    return;
  }
  launch_count_chosen(cache_.view(), heads_, tokens, choice(), stream);
  plan_->make({.archive_counts = planned_.data(),
               .lengths = in_order_.data(),  // 0, 1, ... will do: there is no window
               .slots = in_order_.data(),
               .kv_heads = heads_},
              0, tokens.batch, stream);
}

void QuestAttention::attend_to_chosen(const QuestLayer& layer, int place,
                                      const ops::cuda::AttentionLogits& logits,
                                      const float* queries, bf16* out, cudaStream_t stream) const {
  ops::cuda::DecodeEntries entries{.pool = cache_.view().pool,
                                   .archive_pages = pages_.data(),
                                   .archive_stride = cache_.view().archive_stride,
                                   .archive_counts = entries_.data(),
                                   .lengths = in_order_.data(),
                                   .slots = in_order_.data(),
                                   .kv_heads = layer.heads(),
                                   .settled = false};
  if (has_window()) {
    entries.window_pages = windows_.data();
    entries.window_stride = cache_.view().window_stride;
    entries.lengths = lengths_.data();
    entries.window = cache_.view().ring - 1;
  }
  if (plan_) {
    plan_->attend(place, entries, logits.scale, queries, out, stream);
  } else {
    general_->attend(entries, tokens_.batch, logits, queries, out, stream);
  }
}

template <class Query>
void QuestAttention::attend_to_best(const QuestLayer& layer, int place,
                                    const ops::cuda::AttentionLogits& logits, const Query* queries,
                                    bf16* out, cudaStream_t stream) const {
  if (!plan_ && !has_window()) {
    launch_count_chosen(cache_.view(), layer.heads(), tokens_, choice(), stream);
  }
  launch_choose_pages(cache_.layout().head_dim(), cache_.view(), layer, tokens_, queries, choice(),
                      stream);
  if constexpr (std::is_same_v<Query, float>) {
    attend_to_chosen(layer, place, logits, queries, out, stream);
  } else {
    attend_to_chosen(layer, place, logits, queries_.data(), out, stream);
  }
}

void QuestAttention::attend(const DecodeAppend& step, const ops::cuda::AttentionLogits& logits,
                            bool counts, bf16* out, cudaStream_t stream) const {
  if (tokens_.batch == 0) {
    return;
  }
  const QuestLayer own = layer(step.layer);
  launch_renew_bounds(cache_.layout().format(), cache_.layout().head_dim(), cache_.view(), own,
                      tokens_, 1, stream);
  attend_to_best(own, step.layer, logits, step.queries, out, stream);
  if (counts_reads_ && counts) {
    launch_count_reads(cache_.view(), own, tokens_, choice(),
                       reads_.data() + static_cast<std::size_t>(step.layer) * reads_stride(),
                       stream);
  }
}

void QuestAttention::attend(const PrefillAppend& chunk, const ops::cuda::AttentionLogits& logits,
                            bf16* out, std::span<std::int32_t> visible, cudaStream_t stream) {
  const QuestLayer own = layer(chunk.layer);
  const auto width = static_cast<std::size_t>(own.heads() * cache_.layout().head_dim());
  const auto kv_heads = static_cast<std::size_t>(own.kv_heads);
  for (int first = 0; first < chunk.tokens; first += most_tokens_) {
    const auto row = static_cast<std::size_t>(first);
    const int count = std::min(most_tokens_, chunk.tokens - first);
    plan({.batch = count, .slot = chunk.slot, .position = chunk.length + first}, stream);
    attend_to_best(own, 0, logits, chunk.queries + row * width, out + row * width, stream);
    if (!visible.empty()) {
      launch_count_reads(cache_.view(), own, tokens_, choice(), reads_.data(), stream);
      winnow::cuda::check(cudaStreamSynchronize(stream), "wait for the choice of pages");
      reads_.read(visible.subspan(row * kv_heads, static_cast<std::size_t>(count) * kv_heads));
    }
  }
}

std::vector<std::int32_t> QuestAttention::reads() const {
  std::vector<std::int32_t> reads(reads_.size());
  reads_.read(reads);
  return reads;
}

}  // namespace winnow::kvcache::cuda
