// Attention of queries over cached entries.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/kv_page.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// Parameters shared by all rows of one call.
struct AttentionShape {
  int head_dim = 0;
  int group = 0;       // query heads per KV head (G)
  float scale = 0.0F;  // of the scores: 1 / sqrt(head_dim)
  PageLayout archive;
  PageLayout window;
  /// Above 0, a score s becomes soft_cap * tanh(s / soft_cap).
  float soft_cap = 0.0F;
};

/// One query token and one KV head: all its entries are visible.
struct DecodeRow {
  const float* query = nullptr;  // [G, head_dim]
  float* out = nullptr;          // [G, head_dim]
  EntrySpan archive;
  EntrySpan window;
  /// Optional [G, archive.count + window.count]: receives the attention weights.
  float* weights = nullptr;
  /// Optional [G]: logits that join the softmax's denominator without a value (gpt-oss), so that
  /// the weights add up to less than 1.
  const float* sinks = nullptr;
};

/// out = softmax(scale * query . keys) values, for each row. The length is split at fixed positions
/// and merged by log-sum-exp, so a row's result does not depend on the other rows or on the
/// threads. A row without entries gets zeros.
void decode_attention(Context& context, const AttentionShape& shape,
                      std::span<const DecodeRow> rows);

/// One KV head of a chunk of T consecutive query tokens. Query t sees the first archive_counts[t]
/// archive entries and part of the band: the `lead` tokens before the chunk, then the chunk. Its
/// part is [max(0, lead + t - window), lead + t]: its own token and the `window` before it.
struct PrefillHead {
  Matrix<const float> query;                     // [T, G * head_dim]
  Matrix<float> out;                             // [T, G * head_dim]
  EntrySpan archive;                             // including the chunk's own entries
  const std::int32_t* archive_counts = nullptr;  // [T], non-decreasing
  /// The band in float: keys as panels [ceil((lead + T) / kPageEntries)][head_dim][kPageEntries]
  /// (padding after the last entry must be finite), values [lead + T][head_dim].
  const float* band_keys = nullptr;
  const float* band_values = nullptr;
  int lead = 0;
  int window = 0;
  const float* sinks = nullptr;  // [G] or null, as in DecodeRow
};

/// Exact sparse prefill: a tile of queries reads the archive (about 1/CR of the past) and its dense
/// band, never a T x T matrix.
void prefill_attention(Context& context, const AttentionShape& shape,
                       std::span<const PrefillHead> heads);

}  // namespace winnow::ops
