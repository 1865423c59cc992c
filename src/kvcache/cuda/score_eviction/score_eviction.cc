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

ScoreEvictionAttention::ScoreEvictionAttention(const DeviceCache& cache, int most_batch,
                                               parallel::cuda::DeviceRanks* ranks)
    : cache_(cache),
      ranks_(cache.config().traits().drops_by_layer() ? ranks : nullptr),
      shape_(shape_of(cache)),
      most_batch_(most_batch),
      rows_at_once_(most_batch),
      arrived_(static_cast<std::size_t>(most_batch)) {
  const RuleTraits& rule = cache.config().traits();
  require(scores_each(rule.eviction->device_score),
          "--cache {}: no kernel scores its entries after each token", rule.name);
  if (!rule.drops_by_layer()) {
    return;
  }
  const int heads = cache.shape().most_kv_heads();
  const int resident = resident_score_eviction_blocks(shape_, cache.shape().most_group());
  require(heads <= resident, "--cache {}: {} KV heads are more than the device runs at once",
          rule.name, heads);
  rows_at_once_ = std::min(resident / heads, most_batch);
  if (ranks_ != nullptr) {
    require(ranks_->share_memory(),
            "--cache {} with --tensor-parallel: the heads of a layer drop the same entries, which "
            "takes devices that read each other's memory: threads of one process, or processes of "
            "one machine without --rank-exchange nccl",
            rule.name);
    rows_at_once_ = ranks_->least(std::min(rows_at_once_, kMostMeetingRows));
  }
}

void ScoreEvictionAttention::reserve() {
  const auto& shape = cache_.shape();
  const std::size_t rows = static_cast<std::size_t>(most_batch_ * shape.most_kv_heads());
  const std::size_t stride = cache_.view().entry_stride;
  weights_.ensure(rows * stride * static_cast<std::size_t>(shape.most_group()));
  sums_.ensure(2 * rows * stride);
  if (ranks_ != nullptr) {
    ranks_->reserve_shared(RankScores::bytes(stride));
  }
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
          .ranks = ranks_ != nullptr ? RankScores(ranks_->rank(), ranks_->size(), ranks_->shared())
                                     : RankScores(),
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
  const std::size_t width =
      static_cast<std::size_t>(all.kv_heads * all.group * cache_.shape().head_dim);
  for (int first = 0; first < step.batch; first += rows_at_once_) {
    all.batch = std::min(rows_at_once_, step.batch - first);
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
