// Append new tokens to the cache and compute their attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
  ops::Matrix<const float> logits;            // [T, kv_heads]; DMS: the logits of the decisions
  ops::Matrix<const float> omegas;            // [T, kv_heads]; DMC
  /// Optional [T, kv_heads]: receives how many entries each query saw.
  ops::Matrix<std::int32_t> visible;
  /// Optional, for chunks of one token: receives its weights, [kv_heads][group, entries seen]. Not
  /// for Quest, whose queries see different entries.
  float* weights = nullptr;
  /// Optional [kv_heads * group]: the sinks of the layer's query heads (ops::DecodeRow).
  const float* sinks = nullptr;
  /// Rows of `out` before this one need not be computed.
  std::size_t first_out = 0;
};

/// A KV head's share of a chunk that is taken at once, and the entries that its queries see.
struct HeadChunk {
  const LayerChunk* chunk = nullptr;
  std::size_t index = 0;  // the chunk's index in its call
  std::size_t rows = 0;
  int head = 0;
  int lead = 0;                     // tokens of the band before the chunk
  std::span<float> band_keys = {};  // the newest entries
  std::span<float> band_values = {};
  std::span<std::int32_t> archive_counts = {};  // by row: archive entries that it sees
};

/// The entries of a layer that the queries of one call saw, for later layers that share them. They
/// lie in the workspace. It is empty for chunks of one token, which see what the cache holds.
using SeenEntries = std::vector<HeadChunk>;

/// Appends every chunk to its sequence's heads of `layer` and computes its attention. What a query
/// sees depends on its sequence alone, not on how tokens are cut into chunks or which chunks share
/// the call. The caller has made sure that enough pages are free (SequenceCache::page_need).
/// `seen`, if given, receives what attend_to_seen() needs.
void append_and_attend(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                       SeenEntries* seen = nullptr);

/// Attention of a layer that shares the entries of `layer`: its chunks attend to what the chunks of
/// the same tokens saw there. Those had one token each or were taken at once (takes_at_once). The
/// keys and values of `chunks` are not read. Entries that a rule has dropped by score are not seen.
void attend_to_seen(ops::Context& context, int layer, std::span<const LayerChunk> chunks,
                    const SeenEntries& seen);

/// Whether a sequence's next `tokens` are taken at once in every layer.
bool takes_at_once(const ops::Context& context, const SequenceCache& sequence, int tokens);

}  // namespace winnow::kvcache
