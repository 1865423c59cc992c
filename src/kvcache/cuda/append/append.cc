#include "kvcache/cuda/append/append.h"

#include <algorithm>

#include "base/error.h"
#include "kvcache/cuda/append/append_kernels.h"
#include "kvcache/cuda/sequence_kernels.h"

namespace winnow::kvcache::cuda {
namespace {

void check_group(const Projection& projection) {
  require(projection.group >= 1, "{} query heads per KV head", projection.group);
}

bool has_queries_apart(const Projection& projection) {
  return projection.queries_alone || projection.group > projection.query_warps();
}

}  // namespace

void append(const DeviceCache& cache, const Projection& projection, const DecodeAppend& step,
            cudaStream_t stream) {
  check_group(projection);
  if (step.batch > 0) {
    const ops::EntryFormat format = cache.layout().format();
    const int head_dim = cache.layout().head_dim();
    if (has_queries_apart(projection)) {
      launch_queries(format, cache.view(), projection, step, stream);
    }
    if (!projection.queries_alone && cache.merges(step.layer)) {
      launch_dmc_append(format, head_dim, cache.view(), projection, step, stream);
    } else if (!projection.queries_alone) {
      launch_append(format, head_dim, cache.view(step.layer), projection, step, stream);
    }
    if (has_queries_apart(projection) && cache.merges(step.layer)) {
      launch_open_scores(cache.view(), projection, step, stream);
    }
  }
}

void advance(DeviceCache& cache, int slot, int tokens, cudaStream_t stream) {
  cache.advance(slot, tokens);
  launch_move_on(cache.view(), slot, cache.length(slot), stream);
}

Band::Band(const DeviceCache& cache, int most_tokens) : stride(cache.most_ring() + most_tokens) {
  const auto heads = static_cast<std::size_t>(cache.shape().most_kv_heads());
  const auto dim = static_cast<std::size_t>(cache.layout().head_dim());
  const std::size_t tokens = heads * static_cast<std::size_t>(most_tokens);
  const std::size_t entries = heads * static_cast<std::size_t>(stride);
  const std::size_t row_bytes = cache.merges() ? dim * sizeof(bf16) : cache.layout().row_bytes();
  keys = winnow::cuda::DeviceBuffer<std::byte>(entries * row_bytes);
  values = winnow::cuda::DeviceBuffer<std::byte>(entries * row_bytes);
  scales = winnow::cuda::DeviceBuffer<bf16>(2 * entries);
  decisions = winnow::cuda::DeviceBuffer<std::uint8_t>(tokens);
  seen = winnow::cuda::DeviceBuffer<std::int32_t>(tokens);
  kept = winnow::cuda::DeviceBuffer<std::int32_t>(entries);
  counts = winnow::cuda::DeviceBuffer<std::int32_t>(2 * heads);
  if (cache.limits_archive()) {
    logits = winnow::cuda::DeviceBuffer<float>(tokens);
  }
  if (cache.merges()) {
    merge_keys = winnow::cuda::DeviceBuffer<float>(tokens * dim);
    merge_values = winnow::cuda::DeviceBuffer<float>(tokens * dim);
    omegas = winnow::cuda::DeviceBuffer<float>(tokens);
    open_before = winnow::cuda::DeviceBuffer<float>(heads * (2 * dim + 1));
  }
}

BandView Band::view() const {
  return {.stride = stride,
          .keys = keys.data(),
          .values = values.data(),
          .scales = scales.data(),
          .decisions = decisions.data(),
          .seen = seen.data(),
          .kept = kept.data(),
          .counts = counts.data(),
          .logits = logits.data(),
          .merge_keys = merge_keys.data(),
          .merge_values = merge_values.data(),
          .omegas = omegas.data(),
          .open_before = open_before.data()};
}

int lead_of(const DeviceCache& cache, int layer, int slot, int length) {
  CacheView view = cache.view(layer);
  view.ring = cache.ring(layer, slot);
  return view.held_before(length);
}

void append(const DeviceCache& cache, const Projection& projection, const PrefillAppend& chunk,
            const Band& band, cudaStream_t stream) {
  check_group(projection);
  require(lead_of(cache, chunk.layer, chunk.slot, chunk.length) + chunk.tokens <= band.stride,
          "a chunk of {} tokens is too long for a band of {}", chunk.tokens, band.stride);
  if (chunk.tokens > 0) {
    CacheView view = cache.view(chunk.layer);
    view.ring = cache.ring(chunk.layer, chunk.slot);
    const ops::EntryFormat format = cache.layout().format();
    const int head_dim = cache.layout().head_dim();
    if (has_queries_apart(projection)) {
      launch_queries(format, head_dim, projection, chunk, stream);
    }
    if (projection.queries_alone) {
      return;
    }
    if (cache.merges(chunk.layer)) {
      launch_dmc_append(format, head_dim, view, projection, chunk, band.view(), stream);
    } else {
      launch_append(format, head_dim, view, projection, chunk, band.view(), stream);
    }
  }
}

void project(const DeviceCache& cache, const Projection& projection, const PrefillAppend& chunk,
             const Band& band, cudaStream_t stream) {
  check_group(projection);
  require(chunk.tokens <= band.stride, "a chunk of {} tokens is too long for a band of {}",
          chunk.tokens, band.stride);
  const ops::EntryFormat format = cache.layout().format();
  const int head_dim = cache.layout().head_dim();
  if (has_queries_apart(projection)) {
    launch_queries(format, head_dim, projection, chunk, stream);
  }
  if (!projection.queries_alone) {
    launch_project(format, head_dim, cache.view(), projection, chunk, band.view(), stream);
  }
}

}  // namespace winnow::kvcache::cuda
