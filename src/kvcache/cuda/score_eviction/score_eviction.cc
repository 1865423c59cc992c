#include "kvcache/cuda/score_eviction/score_eviction.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::kvcache::cuda {
namespace {

ScoreEvictionShape shape_of(const DeviceCache& cache) {
  return {cache.layout().format(), cache.layout().head_dim(), cache.has_fast_attention()};
}

// Whether ScoreEvictionBlock::score() computes such scores. It takes any value for attention, so a
// new value must fail to compile here.
bool scores_each(DeviceScore how) {
  switch (how) {
    case DeviceScore::attention:
    case DeviceScore::draw:
    case DeviceScore::weighted_attention:
      return true;
    case DeviceScore::none:
    case DeviceScore::neighbours_attention:
    case DeviceScore::redundancy:
    case DeviceScore::expected_attention:
    case DeviceScore::future_queries:
      break;
  }
  return false;
}

}  // namespace

ScoreEvictionAttention::ScoreEvictionAttention(const DeviceCache& cache, int most_batch)
    : cache_(cache),
      shape_(shape_of(cache)),
      most_batch_(most_batch),
      resident_blocks_(resident_score_eviction_blocks(shape_, cache.shape().most_group())),
      arrived_(static_cast<std::size_t>(most_batch)) {
  require(scores_each(cache.config().traits().eviction->device_score),
          "--cache {}: no kernel scores its entries after each token",
          rule_name(cache.config().rule));
  require(cache.shape().most_kv_heads() <= resident_blocks_,
          "--cache {}: {} KV heads are more than the device runs at once",
          rule_name(cache.config().rule), cache.shape().most_kv_heads());
}

void ScoreEvictionAttention::reserve() {
  const auto& shape = cache_.shape();
  const std::size_t rows = static_cast<std::size_t>(most_batch_ * shape.most_kv_heads());
  const std::size_t entries = rows * cache_.view().entry_stride;
  weights_.ensure(entries * static_cast<std::size_t>(shape.most_group()));
  sums_.ensure(2 * entries);
}

// The arguments that all launches for a step's or a chunk's tokens share.
ScoreEvictionArguments ScoreEvictionAttention::arguments(
    int layer, const ops::cuda::AttentionLogits& logits) const {
  const Eviction& eviction = *cache_.config().traits().eviction;
  return {.cache = cache_.view(),
          .layer = layer,
          .kv_heads = cache_.shape().kv_heads_of(layer),
          .group = cache_.shape().group_of(layer),
          .logits = logits,
          .observes = eviction.observes != nullptr,
          .scored = eviction.device_score,
          .by_layer = eviction.by_layer,
          .batch = 1,
          .slots = nullptr,
          .slot = 0,
          .length = 0,
          .tokens = 1,
          .band = {},
          .queries = nullptr,
          .out = nullptr,
          .weights = weights_.data(),
          .sums = sums_.data(),
          .arrived = arrived_.data(),
          .stride = cache_.view().entry_stride};
}

void ScoreEvictionAttention::launch(const ScoreEvictionArguments& arguments,
                                    cudaStream_t stream) const {
  if (arguments.by_layer) {
    winnow::cuda::check(
        cudaMemsetAsync(arrived_.data(), 0, arrived_.size() * sizeof(std::uint32_t), stream),
        "clear the arrival counters");
  }
  launch_score_eviction(shape_, arguments, stream);
}

void ScoreEvictionAttention::attend(const DecodeAppend& step,
                                    const ops::cuda::AttentionLogits& logits, bf16* out,
                                    cudaStream_t stream) const {
  ScoreEvictionArguments all = arguments(step.layer, logits);
  const int heads = all.kv_heads;
  // At most as many sequences as the device holds at once, because their heads wait for each other.
  const int most = all.by_layer ? std::max(1, resident_blocks_ / heads) : step.batch;
  const std::size_t width = static_cast<std::size_t>(heads * all.group * cache_.shape().head_dim);
  for (int first = 0; first < step.batch; first += most) {
    all.batch = std::min(most, step.batch - first);
    all.slots = step.slots + first;
    all.queries = step.queries + static_cast<std::size_t>(first) * width;
    all.out = out + static_cast<std::size_t>(first) * width;
    launch(all, stream);
  }
}

void ScoreEvictionAttention::append_and_attend(const Projection& projection,
                                               const PrefillAppend& chunk, const Band& band,
                                               const ops::cuda::AttentionLogits& logits, bf16* out,
                                               cudaStream_t stream) const {
  project(cache_, projection, chunk, band, stream);
  ScoreEvictionArguments all = arguments(chunk.layer, logits);
  all.slot = chunk.slot;
  all.length = chunk.length;
  all.tokens = chunk.tokens;
  all.band = band.view();
  all.queries = chunk.queries;
  all.out = out;
  launch(all, stream);
}

}  // namespace winnow::kvcache::cuda
