#include "kvcache/cuda/score_eviction/score_eviction.h"

#include <algorithm>
#include <numbers>

#include "base/error.h"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/score_eviction/score_eviction_kernels.h"

namespace winnow::kvcache::cuda {
namespace {

int checked_resident_blocks(const DeviceCache& cache) {
  const int head_dim = cache.layout().head_dim();
  const int group = cache.shape().group;
  require(ops::cuda::has_own_kernels(head_dim, group),
          "--cache {}: no kernel for {} query heads per KV head of head dimension {}",
          rule_name(cache.config().rule), group, head_dim);
  return resident_score_eviction_blocks(cache.layout().format(), head_dim, group);
}

}  // namespace

ScoreEvictionAttention::ScoreEvictionAttention(const DeviceCache& cache, int most_batch)
    : cache_(cache),
      most_batch_(most_batch),
      resident_blocks_(checked_resident_blocks(cache)),
      arrived_(static_cast<std::size_t>(most_batch)) {
  require(cache.shape().kv_heads <= resident_blocks_,
          "--cache {}: {} KV heads are more than the device runs at once",
          rule_name(cache.config().rule), cache.shape().kv_heads);
}

void ScoreEvictionAttention::reserve() {
  const auto& shape = cache_.shape();
  const std::size_t rows = static_cast<std::size_t>(most_batch_ * shape.kv_heads);
  const std::size_t entries = rows * cache_.view().entry_stride;
  weights_.ensure(entries * static_cast<std::size_t>(shape.group));
  sums_.ensure(2 * entries);
}

// What a launch of all of a step's or a chunk's tokens has in common.
ScoreEvictionArguments ScoreEvictionAttention::arguments(int layer, float scale) const {
  return {.cache = cache_.view(),
          .layer = layer,
          .group = cache_.shape().group,
          .scale = scale * std::numbers::log2e_v<float>,
          .by_layer = cache_.config().traits().drop_by == DropBy::current_attention,
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
  const ops::EntryFormat format = cache_.layout().format();
  const int head_dim = cache_.layout().head_dim();
  if (arguments.by_layer) {
    winnow::cuda::check(
        cudaMemsetAsync(arrived_.data(), 0, arrived_.size() * sizeof(std::uint32_t), stream),
        "clear the arrival counters");
  }
  launch_score_eviction(format, head_dim, arguments, stream);
}

void ScoreEvictionAttention::attend(const DecodeAppend& step, float scale, bf16* out,
                                    cudaStream_t stream) const {
  const int heads = cache_.shape().kv_heads;
  ScoreEvictionArguments all = arguments(step.layer, scale);
  // As many sequences at once as the device holds: their heads wait for each other.
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

int ScoreEvictionAttention::free_tokens(const Rule& rule, int length, int tokens) {
  return rule.rows_at_once(length, tokens);
}

void ScoreEvictionAttention::append_and_attend(const Projection& projection,
                                               const PrefillAppend& chunk, const Band& band,
                                               float scale, bf16* out, cudaStream_t stream) const {
  require(chunk.tokens <= band.stride, "a chunk of {} tokens is too long for a band of {}",
          chunk.tokens, band.stride);
  launch_project(cache_.layout().format(), cache_.layout().head_dim(), cache_.view(), projection,
                 chunk, band.view(), stream);
  ScoreEvictionArguments all = arguments(chunk.layer, scale);
  all.slot = chunk.slot;
  all.length = chunk.length;
  all.tokens = chunk.tokens;
  all.band = band.view();
  all.queries = chunk.queries;
  all.out = out;
  launch(all, stream);
}

}  // namespace winnow::kvcache::cuda
