#include "kvcache/cuda/score_eviction/rounds.h"

#include <algorithm>

#include "kvcache/eviction/snapkv.h"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kObservedTogether = 8;  // more would need more memory for logits

}  // namespace

void RoundEviction::reserve() {
  const CacheShape& shape = cache_.shape();
  const std::size_t entries =
      static_cast<std::size_t>(shape.most_kv_heads()) * cache_.view().entry_stride;
  if (cache_.config().traits().eviction->observes != nullptr) {
    votes_.ensure(kObservedTogether * entries);
    logits_.ensure(votes_.size() * static_cast<std::size_t>(shape.most_group()));
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
  if (rule.observes(chunk.length)) {
    observe(chunk, logits, layer, stream);
  }
  if (rule.drops_at(length)) {
    score(rule, layer, stream);
    launch_drop_round(cache_.layout().format(), layer,
                      {.length = length,
                       .dropped = layer.entries - held_after(rule, length),
                       .spared = rule.spared(),
                       .forgets = rule.traits->eviction->forgets},
                      scratch(), stream);
  }
}

void RoundEviction::observe(const PrefillAppend& chunk, const ops::cuda::AttentionLogits& logits,
                            const RoundLayer& layer, cudaStream_t stream) const {
  const auto width =
      static_cast<std::size_t>(layer.kv_heads * layer.group * cache_.shape().head_dim);
  for (int first = 0; first < chunk.tokens; first += kObservedTogether) {
    launch_observe(cache_.layout().format(), layer,
                   {.count = std::min(kObservedTogether, chunk.tokens - first),
                    .position = chunk.length + first,
                    .queries = chunk.queries + static_cast<std::size_t>(first) * width,
                    .logits = logits},
                   scratch(), stream);
  }
}

void RoundEviction::score(const Rule& rule, const RoundLayer& layer, cudaStream_t stream) const {
  const bool pools = rule.traits->eviction->device_score == DeviceScore::neighbours_attention;
  launch_score_attention(layer, layer.entries - rule.spared().newest, pools ? kSnapNeighbours : 0,
                         scratch(), stream);
}

}  // namespace winnow::kvcache::cuda
