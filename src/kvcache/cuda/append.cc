#include "kvcache/cuda/append.h"

#include <algorithm>

#include "base/error.h"
#include "kvcache/cuda/append_kernels.h"

namespace winnow::kvcache::cuda {
namespace {

constexpr int kMostGroup = 8;

void check_group(const Projection& projection) {
  require(projection.group >= 1 && projection.group <= kMostGroup,
          "{} query heads per KV head are not supported on the device, expected 1 to {}",
          projection.group, kMostGroup);
}

}  // namespace

void append(const DeviceCache& cache, const Projection& projection, const DecodeAppend& step,
            cudaStream_t stream) {
  check_group(projection);
  if (step.batch > 0) {
    launch_append(cache.layout().format(), cache.layout().head_dim(), cache.view(), projection,
                  step, stream);
  }
}

void advance(DeviceCache& cache, int slot, int tokens, cudaStream_t stream) {
  cache.advance(slot, tokens);
  launch_set_length(cache.view(), slot, cache.length(slot), stream);
}

Band::Band(const DeviceCache& cache, int most_tokens) : stride(cache.view().ring + most_tokens) {
  const auto heads = static_cast<std::size_t>(cache.shape().kv_heads);
  const std::size_t entries = heads * static_cast<std::size_t>(stride);
  const std::size_t row_bytes =
      static_cast<std::size_t>(cache.layout().head_dim()) * cache.layout().host().element_bytes();
  keys = winnow::cuda::DeviceBuffer<std::byte>(entries * row_bytes);
  values = winnow::cuda::DeviceBuffer<std::byte>(entries * row_bytes);
  scales = winnow::cuda::DeviceBuffer<bf16>(2 * entries);
  decisions =
      winnow::cuda::DeviceBuffer<std::uint8_t>(heads * static_cast<std::size_t>(most_tokens));
  seen = winnow::cuda::DeviceBuffer<std::int32_t>(heads * static_cast<std::size_t>(most_tokens));
  kept = winnow::cuda::DeviceBuffer<std::int32_t>(entries);
  counts = winnow::cuda::DeviceBuffer<std::int32_t>(2 * heads);
}

int lead_of(const DeviceCache& cache, int length) {
  return std::min(length, cache.view().ring);
}

void append(const DeviceCache& cache, const Projection& projection, const PrefillAppend& chunk,
            const Band& band, cudaStream_t stream) {
  check_group(projection);
  require(lead_of(cache, chunk.length) + chunk.tokens <= band.stride,
          "a chunk of {} tokens is too long for a band of {}", chunk.tokens, band.stride);
  if (chunk.tokens > 0) {
    launch_append(cache.layout().format(), cache.layout().head_dim(), cache.view(), projection,
                  chunk,
                  {band.stride, band.keys.data(), band.values.data(), band.scales.data(),
                   band.decisions.data(), band.seen.data(), band.kept.data(), band.counts.data()},
                  stream);
  }
}

}  // namespace winnow::kvcache::cuda
