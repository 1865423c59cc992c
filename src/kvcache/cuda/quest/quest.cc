#include "kvcache/cuda/quest/quest.h"

#include <algorithm>
#include <numeric>

namespace winnow::kvcache::cuda {
namespace {

winnow::cuda::DeviceBuffer<std::int32_t> ascending(int count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(numbers));
}

}  // namespace

QuestAttention::QuestAttention(const DeviceCache& cache, int most_tokens, int layers)
    : cache_(cache),
      heads_(cache.shape().kv_heads * cache.shape().group),
      most_tokens_(most_tokens),
      plan_(cache.layout(), 1, heads_, most_tokens, layers),
      in_order_(ascending(most_tokens)),
      entries_(static_cast<std::size_t>(most_tokens * heads_)),
      planned_(entries_.size()),
      queries_(entries_.size() * static_cast<std::size_t>(cache.shape().head_dim)),
      reads_(static_cast<std::size_t>(layers * most_tokens * cache.shape().kv_heads)) {}

void QuestAttention::reserve() {
  pages_.ensure(entries_.size() * cache_.view().archive_stride);
  bounds_.ensure(entries_.size() * cache_.view().archive_stride);
}

int QuestAttention::prompt_tokens(const Rule& rule, int length, int tokens) {
  return std::clamp(rule.prompt_tokens - length, 0, tokens);
}

void QuestAttention::renew_bounds(const PrefillAppend& chunk, cudaStream_t stream) const {
  launch_renew_bounds(cache_.layout().format(), cache_.layout().head_dim(), cache_.view(),
                      chunk.layer, {1, nullptr, chunk.slot, chunk.length}, chunk.tokens, stream);
}

QuestChoice QuestAttention::choice() const {
  return {.pages = pages_.data(),
          .bounds = bounds_.data(),
          .stride = cache_.view().archive_stride,
          .entries = entries_.data(),
          .planned = planned_.data(),
          .queries = tokens_.slots == nullptr ? queries_.data() : nullptr,
          .page_entries = Rule(cache_.config(), {}).page_entries};
}

void QuestAttention::plan(const std::int32_t* slots, int batch, cudaStream_t stream,
                          bool count_reads) {
  counts_reads_ = count_reads;
  plan({.batch = batch, .slots = slots}, stream);
}

// To the attention every query head of every token is a row of its own, whose archive is what it
// has chosen: as many entries in all layers.
void QuestAttention::plan(const QuestTokens& tokens, cudaStream_t stream) {
  tokens_ = tokens;
  if (tokens.batch == 0) {
    return;
  }
  launch_count_chosen(cache_.view(), heads_, tokens, choice(), stream);
  plan_.make({.archive_counts = planned_.data(),
              .lengths = in_order_.data(),  // without a window the last few suffice
              .slots = in_order_.data(),
              .kv_heads = heads_},
             0, tokens.batch, stream);
}

void QuestAttention::attend_to_chosen(int layer, float scale, const float* queries, bf16* out,
                                      cudaStream_t stream) const {
  plan_.attend(layer,
               {.pool = cache_.view().pool,
                .archive_pages = pages_.data(),
                .archive_stride = cache_.view().archive_stride,
                .archive_counts = entries_.data(),
                .lengths = in_order_.data(),
                .slots = in_order_.data(),
                .kv_heads = heads_,
                .settled = false},
               scale, queries, out, stream);
}

void QuestAttention::attend(const DecodeAppend& step, float scale, bf16* out,
                            cudaStream_t stream) const {
  if (tokens_.batch == 0) {
    return;
  }
  const int head_dim = cache_.layout().head_dim();
  launch_renew_bounds(cache_.layout().format(), head_dim, cache_.view(), step.layer, tokens_, 1,
                      stream);
  launch_choose_pages(head_dim, cache_.view(), step.layer, cache_.shape().group, tokens_,
                      step.queries, choice(), stream);
  if (counts_reads_) {
    const auto layer = static_cast<std::size_t>(step.layer * most_tokens_);
    launch_count_reads(cache_.view(), cache_.shape().group, tokens_, choice(),
                       reads_.data() + layer * static_cast<std::size_t>(cache_.shape().kv_heads),
                       stream);
  }
  attend_to_chosen(step.layer, scale, step.queries, out, stream);
}

void QuestAttention::attend(const PrefillAppend& chunk, float scale, bf16* out,
                            std::span<std::int32_t> visible, cudaStream_t stream) {
  const auto width = static_cast<std::size_t>(heads_ * cache_.layout().head_dim());
  const auto kv_heads = static_cast<std::size_t>(cache_.shape().kv_heads);
  for (int first = 0; first < chunk.tokens; first += most_tokens_) {
    const auto row = static_cast<std::size_t>(first);
    const int count = std::min(most_tokens_, chunk.tokens - first);
    plan({.batch = count, .slot = chunk.slot, .position = chunk.length + first}, stream);
    launch_choose_pages(cache_.layout().head_dim(), cache_.view(), chunk.layer,
                        cache_.shape().group, tokens_, chunk.queries + row * width, choice(),
                        stream);
    attend_to_chosen(0, scale, queries_.data(), out + row * width, stream);
    if (!visible.empty()) {
      launch_count_reads(cache_.view(), cache_.shape().group, tokens_, choice(), reads_.data(),
                         stream);
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
