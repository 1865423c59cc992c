#include "kvcache/cuda/score_eviction/rounds.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kvcache/eviction/expected_attention.h"
#include "kvcache/eviction/future_queries.h"
#include "kvcache/eviction/snapkv.h"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kObservedTogether = 8;  // more would need more memory for logits

}  // namespace

RoundEviction::RoundEviction(const DeviceCache& cache) : cache_(cache) {
  if (how() == DeviceScore::expected_attention) {
    const CacheShape& shape = cache.shape();
    const auto planes = static_cast<std::size_t>(shape.head_dim / 2);
    std::vector<float> frequencies(static_cast<std::size_t>(shape.layers) * planes);
    for (int layer = 0; layer < shape.layers; ++layer) {
      std::ranges::copy(shape.rope_of(layer).frequencies,
                        frequencies.data() + static_cast<std::size_t>(layer) * planes);
    }
    frequencies_ = winnow::cuda::DeviceBuffer<float>(std::span<const float>(frequencies));
    plain_.ensure(static_cast<std::size_t>(kNotedTogether * shape.most_kv_heads() *
                                           shape.most_group() * shape.head_dim));
    rotations_.ensure(planes);
  }
}

void RoundEviction::reserve() {
  const CacheShape& shape = cache_.shape();
  const std::size_t entries =
      static_cast<std::size_t>(shape.most_kv_heads()) * cache_.view().entry_stride;
  if (cache_.config().traits().eviction->observes != nullptr) {
    votes_.ensure(kObservedTogether * entries);
    logits_.ensure(votes_.size() * static_cast<std::size_t>(shape.most_group()));
  }
  if (how() == DeviceScore::future_queries) {
    const auto heads = static_cast<std::size_t>(shape.most_kv_heads() * shape.most_group());
    expected_.ensure(2 * heads * static_cast<std::size_t>(shape.head_dim));
    products_.ensure(entries * static_cast<std::size_t>(shape.most_group()));
  }
  if (how() == DeviceScore::expected_attention) {
    logits_.ensure(entries * static_cast<std::size_t>(shape.most_group()));
  }
  if (how() == DeviceScore::redundancy || how() == DeviceScore::expected_attention) {
    keys_.ensure(entries * static_cast<std::size_t>(shape.head_dim));
  }
  scores_.ensure(entries);
  holes_.ensure(entries);
  moved_.ensure(entries);
}

RoundScratch RoundEviction::scratch() const {
  return {.logits = logits_.data(),
          .votes = votes_.data(),
          .scores = scores_.data(),
          .holes = holes_.data(),
          .moved = moved_.data(),
          .keys = keys_.data(),
          .stride = cache_.view().entry_stride};
}

int RoundEviction::rows_together(int layer, int slot, int position, int tokens) const {
  const Rule rule = cache_.rule(slot, layer);
  int count = 0;
  do {
    ++count;
  } while (count < tokens && !rule.drops_at(position + count) &&
           rule.observes(position + count) == rule.observes(position));
  return count;
}

void RoundEviction::evict(const PrefillAppend& chunk, const ops::cuda::AttentionLogits& logits,
                          cudaStream_t stream) const {
  const Rule rule = cache_.rule(chunk.slot, chunk.layer);
  const int length = chunk.length + chunk.tokens;
  const auto& held_after = rule.traits->eviction->held_after;
  const RoundLayer layer{.cache = cache_.view(),
                         .layer = chunk.layer,
                         .slot = chunk.slot,
                         .kv_heads = cache_.shape().kv_heads_of(chunk.layer),
                         .group = cache_.shape().group_of(chunk.layer),
                         .entries = held_after(rule, length - 1) + 1};
  if (how() == DeviceScore::expected_attention) {
    note(rule, chunk, layer, stream);
  }
  if (rule.observes(chunk.length)) {
    observe(rule, chunk, logits, layer, stream);
  }
  if (rule.drops_at(length)) {
    score(rule, layer, length, stream);
    launch_drop_round(cache_.layout().format(), layer,
                      {.length = length,
                       .dropped = layer.entries - held_after(rule, length),
                       .spared = rule.spared(),
                       .forgets = rule.traits->eviction->forgets},
                      scratch(), stream);
  }
}

void RoundEviction::observe(const Rule& rule, const PrefillAppend& chunk,
                            const ops::cuda::AttentionLogits& logits, const RoundLayer& layer,
                            cudaStream_t stream) const {
  const int newest = rule.spared().newest;
  int next_drop = chunk.length + 1;
  while (how() == DeviceScore::redundancy && !rule.drops_at(next_drop)) {
    ++next_drop;
  }
  const auto width =
      static_cast<std::size_t>(layer.kv_heads * layer.group * cache_.shape().head_dim);
  for (int first = 0; first < chunk.tokens; first += kObservedTogether) {
    launch_observe(cache_.layout().format(), layer,
                   {.count = std::min(kObservedTogether, chunk.tokens - first),
                    .position = chunk.length + first,
                    .queries = chunk.queries + static_cast<std::size_t>(first) * width,
                    .logits = logits,
                    .averaged = how() == DeviceScore::redundancy ? newest : 0,
                    .past_end = next_drop - newest},
                   scratch(), stream);
  }
}

NotedQueries RoundEviction::noted(int slot, int layer) const {
  const LayerRope& rope = cache_.shape().rope_of(layer);
  const auto planes = static_cast<std::size_t>(cache_.shape().head_dim / 2);
  return {.statistics = cache_.query_statistics(slot, layer),
          .frequencies = frequencies_.data() + static_cast<std::size_t>(layer) * planes,
          .turned = static_cast<int>(rope.frequencies.size()),
          .interleaved = rope.interleaved,
          .plain = plain_.data(),
          .rotations = rotations_.data()};
}

void RoundEviction::note(const Rule& rule, const PrefillAppend& chunk, const RoundLayer& layer,
                         cudaStream_t stream) const {
  const auto width =
      static_cast<std::size_t>(layer.kv_heads * layer.group * cache_.shape().head_dim);
  const int end = chunk.length + chunk.tokens;
  for (int position = std::max(chunk.length, kExpectedSinks);
       position < end && counts_query(rule, position); position += kNotedTogether) {
    const int last = std::min(end, rule.prompt_tokens);
    launch_note_queries(
        cache_.layout().format(), layer,
        {.count = std::min(kNotedTogether, last - position),
         .position = position,
         .queries = chunk.queries + static_cast<std::size_t>(position - chunk.length) * width,
         .logits = {}},
        position - kExpectedSinks + 1, noted(chunk.slot, chunk.layer), stream);
  }
}

void RoundEviction::score(const Rule& rule, const RoundLayer& layer, int length,
                          cudaStream_t stream) const {
  const int newest = rule.spared().newest;
  switch (how()) {
    case DeviceScore::future_queries:
      return score_by_calibration(layer, length, stream);
    case DeviceScore::expected_attention:
      return launch_expect_attention(cache_.layout().format(), layer, cache_.shape().score_scale(),
                                     noted(layer.slot, layer.layer), scratch(), stream);
    case DeviceScore::redundancy:
      return launch_score_redundancy(cache_.layout().format(), layer, newest, scratch(), stream);
    case DeviceScore::neighbours_attention:
      return launch_score_attention(layer, layer.entries - newest, kSnapNeighbours, scratch(),
                                    stream);
    case DeviceScore::none:
    case DeviceScore::attention:
    case DeviceScore::draw:
    case DeviceScore::weighted_attention:
      break;
  }
  fail("--cache {}: no kernel scores its rounds", rule.traits->name);
}

void RoundEviction::score_by_calibration(const RoundLayer& layer, int length,
                                         cudaStream_t stream) const {
  const CacheShape& shape = cache_.shape();
  const int heads = layer.kv_heads * layer.group;
  std::vector<double> means;
  std::vector<double> excesses;
  for (const FutureQueries& queries : expect_queries(shape, layer.layer, length, 0, heads)) {
    means.insert(means.end(), queries.mean.begin(), queries.mean.end());
    excesses.insert(excesses.end(), queries.excess.begin(), queries.excess.end());
  }
  const auto copy = [&](double* to, const std::vector<double>& from) {
    winnow::cuda::check(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(double),
                                        cudaMemcpyHostToDevice, stream),
                        "copy statistics of queries to the device");
  };
  copy(expected_.data(), means);
  copy(expected_.data() + means.size(), excesses);
  winnow::cuda::check(cudaStreamSynchronize(stream), "copy statistics of queries to the device");
  const LayerRope& rope = shape.rope_of(layer.layer);
  launch_score_future(cache_.layout().format(), layer,
                      {.means = expected_.data(),
                       .excesses = expected_.data() + means.size(),
                       .turned = static_cast<int>(rope.frequencies.size()),
                       .interleaved = rope.interleaved,
                       .products = products_.data()},
                      scratch(), stream);
}

}  // namespace winnow::kvcache::cuda
