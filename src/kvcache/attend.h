// Append new tokens to the cache and attend over what is visible to them.
#pragma once

#include <cstdint>
#include <span>

#include "kvcache/sequence_cache.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::kvcache {

/// The next T tokens of one sequence, as one layer sees them.
struct LayerChunk {
  SequenceCache* sequence = nullptr;
  ops::Matrix<const float> queries;           // [T, kv_heads * group * head_dim], after RoPE
  ops::Matrix<const float> keys;              // [T, kv_heads * head_dim], after RoPE
  ops::Matrix<const float> values;            // [T, kv_heads * head_dim]
  ops::Matrix<float> out;                     // [T, kv_heads * group * head_dim]
  ops::Matrix<const std::uint8_t> decisions;  // [T, kv_heads]; DMS: evict, DMC: merge
  ops::Matrix<const float> omegas;            // [T, kv_heads]; DMC
  /// Optional [T, kv_heads]: receives how many entries each query saw.
  ops::Matrix<std::int32_t> visible;
  /// Optional, of chunks of one token: receives its weights, [kv_heads][group, entries seen]. Not
  /// Quest's, whose queries see different entries.
  float* weights = nullptr;
  /// Optional [kv_heads * group]: the sinks of the layer's query heads (ops::DecodeRow).
  const float* sinks = nullptr;
  /// Rows of `out` before this one need not be computed.
  std::size_t first_out = 0;
};

/// Appends every chunk to its sequence's heads of `layer` and computes its attention. What a query
/// sees depends on its sequence alone, not on how tokens are cut into chunks or which chunks share
/// the call. The caller has made sure that the pages are there (SequenceCache::page_need).
void append_and_attend(ops::Context& context, int layer, std::span<const LayerChunk> chunks);

}  // namespace winnow::kvcache
