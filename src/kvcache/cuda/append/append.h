// Appending to the device's cache. Both forms read q, k and v from the output of the layer's
// projection, make the decision, and leave queries ready for attention.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/cuda/device.h"
#include "kvcache/cuda/append/step.h"
#include "kvcache/cuda/device_cache.h"

namespace winnow::kvcache::cuda {

/// Appends a token of each sequence and writes its queries. Here and below, a layer that stores no
/// entries only writes its queries.
void append(const DeviceCache& cache, const Projection& projection, const DecodeAppend& step,
            cudaStream_t stream);

/// Adds `tokens` to the length of a sequence, once all layers have taken them.
void advance(DeviceCache& cache, int slot, int tokens, cudaStream_t stream);

/// The band of a chunk as prefill attention reads it: the `lead` entries before the chunk and the
/// chunk's own, as codes of the cache's format, and the number of archive entries that each query
/// sees. In a layer that merges (DMC): the open entry at each token, in 16 bits.
struct Band {
  Band(const DeviceCache& cache, int most_tokens);
  [[nodiscard]] BandView view() const;

  int stride = 0;                                      // capacity in entries per head
  winnow::cuda::DeviceBuffer<std::byte> keys;          // [kv_heads, stride, head_dim]
  winnow::cuda::DeviceBuffer<std::byte> values;        // [kv_heads, stride, head_dim]
  winnow::cuda::DeviceBuffer<bf16> scales;             // [kv_heads, 2, stride] keys', then values'
  winnow::cuda::DeviceBuffer<std::uint8_t> decisions;  // [kv_heads, most_tokens]
  winnow::cuda::DeviceBuffer<std::int32_t> seen;       // [kv_heads, tokens] archive entries
  winnow::cuda::DeviceBuffer<std::int32_t> kept;       // [kv_heads, stride] band entries to archive
  winnow::cuda::DeviceBuffer<std::int32_t> counts;     // [kv_heads, 2] first slot, kept now
  winnow::cuda::DeviceBuffer<float> logits;  // [kv_heads, most_tokens] limited archives only
  // DMC only:
  winnow::cuda::DeviceBuffer<float> merge_keys;    // [kv_heads, tokens, head_dim]
  winnow::cuda::DeviceBuffer<float> merge_values;  // [kv_heads, tokens, head_dim]
  winnow::cuda::DeviceBuffer<float> omegas;        // [kv_heads, tokens]
  winnow::cuda::DeviceBuffer<float> open_before;   // [kv_heads, 2 head_dim + 1]
};

/// Entries of the band before the chunk.
int lead_of(const DeviceCache& cache, int layer, int slot, int length);
void append(const DeviceCache& cache, const Projection& projection, const PrefillAppend& chunk,
            const Band& band, cudaStream_t stream);
/// Writes the chunk's queries from its begin on, and its entries to the band only.
void project(const DeviceCache& cache, const Projection& projection, const PrefillAppend& chunk,
             const Band& band, cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
