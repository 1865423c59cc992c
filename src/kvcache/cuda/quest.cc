#include "kvcache/cuda/quest.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace winnow::kvcache::cuda {
namespace {

winnow::cuda::DeviceBuffer<std::int32_t> ascending(int count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return winnow::cuda::DeviceBuffer<std::int32_t>(std::span<const std::int32_t>(numbers));
}

template <class T>
std::vector<T> read(const winnow::cuda::DeviceBuffer<T>& buffer, std::size_t count) {
  std::vector<T> result(count);
  buffer.read(result);
  return result;
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
      queries_(entries_.size() * static_cast<std::size_t>(cache.shape().head_dim)) {}

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

void QuestAttention::plan(const std::int32_t* slots, int batch, cudaStream_t stream) {
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
              .lengths = in_order_.data(),  // without a window nobody asks for more than some
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
      count_visible(visible.subspan(row * kv_heads, static_cast<std::size_t>(count) * kv_heads),
                    stream);
    }
  }
}

void QuestAttention::count_visible(std::span<std::int32_t> visible, cudaStream_t stream) const {
  winnow::cuda::check(cudaStreamSynchronize(stream), "wait for the choice of pages");
  const auto rows = static_cast<std::size_t>(tokens_.batch * heads_);
  const std::size_t stride = cache_.view().archive_stride;
  const auto entries = read(entries_, rows);
  const auto pages = read(pages_, rows * stride);
  const auto group = static_cast<std::size_t>(cache_.shape().group);
  for (std::size_t i = 0; i < visible.size(); ++i) {
    std::set<std::uint32_t> chosen;
    for (std::size_t row = i * group; row < (i + 1) * group; ++row) {
      const auto* first = &pages[row * stride];
      chosen.insert(first, first + (entries[row] + ops::kPageEntries - 1) / ops::kPageEntries);
    }
    // All pages are full but the last one, which all queries read.
    const int missing =
        (ops::kPageEntries - entries[i * group] % ops::kPageEntries) % ops::kPageEntries;
    visible[i] = static_cast<std::int32_t>(chosen.size()) * ops::kPageEntries - missing;
  }
}

}  // namespace winnow::kvcache::cuda
