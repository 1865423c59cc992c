// Appending to the device's cache. Both forms read q, k and v as the layer's product gives them,
// take the decision, and leave queries ready for attention.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/cuda/device.h"
#include "kvcache/cuda/append/step.h"
#include "kvcache/cuda/device_cache.h"

namespace winnow::kvcache::cuda {

/// Appends a token of each sequence and leaves its queries. Of a layer that stores no entries, the
/// queries alone, here and below.
void append(const DeviceCache& cache, const Projection& projection, const DecodeAppend& step,
            cudaStream_t stream);

/// Moves on the length of a sequence whose tokens all layers have taken.
void advance(DeviceCache& cache, int slot, int tokens, cudaStream_t stream);

/// The band of a chunk as prefill attention reads it: the `lead` entries before the chunk, then the
/// chunk's own, as codes of the cache's format; and how many archive entries each query sees. Of a
/// layer that merges (DMC): what was open at each token, in 16 bits.
struct Band {
  Band(const DeviceCache& cache, int most_tokens);
  [[nodiscard]] BandView view() const;

  int stride = 0;                                      // entries per head that there is room for
  winnow::cuda::DeviceBuffer<std::byte> keys;          // [kv_heads, stride, head_dim]
  winnow::cuda::DeviceBuffer<std::byte> values;        // [kv_heads, stride, head_dim]
  winnow::cuda::DeviceBuffer<bf16> scales;             // [kv_heads, 2, stride] of keys, of values
  winnow::cuda::DeviceBuffer<std::uint8_t> decisions;  // [kv_heads, most_tokens]
  winnow::cuda::DeviceBuffer<std::int32_t> seen;       // [kv_heads, tokens] archive entries
  winnow::cuda::DeviceBuffer<std::int32_t> kept;       // [kv_heads, stride] band entries to archive
  winnow::cuda::DeviceBuffer<std::int32_t> counts;     // [kv_heads, 2] archived before, kept now
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
/// The chunk's queries, and its entries to the band alone, from its begin on.
void project(const DeviceCache& cache, const Projection& projection, const PrefillAppend& chunk,
             const Band& band, cudaStream_t stream);

}  // namespace winnow::kvcache::cuda
