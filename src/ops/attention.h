// Attention of queries over cached entries.
#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "ops/kv_page.h"
#include "ops/matrix.h"

namespace winnow::ops {

/// What all rows of one call share.
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
  /// Optional [G]: logits that join the softmax's denominator and have no value (gpt-oss), so that
  /// the weights add up to less than 1.
  const float* sinks = nullptr;
};

/// out = softmax(scale * query . keys) values, for each row. The length is split at fixed places
/// and merged by log-sum-exp, so a row's result does not depend on the other rows or on the
/// threads. A row without entries gives zeros.
void decode_attention(Context& context, const AttentionShape& shape,
                      std::span<const DecodeRow> rows);

/// One KV head of a chunk of T consecutive query tokens. Query t sees the first archive_counts[t]
/// archive entries, and of the band (the chunk itself behind the `lead` tokens before it) the
/// `window` tokens before its own and its own: [max(0, lead + t - window), lead + t].
struct PrefillHead {
  Matrix<const float> query;                     // [T, G * head_dim]
  Matrix<float> out;                             // [T, G * head_dim]
  EntrySpan archive;                             // as it is after the chunk was appended
  const std::int32_t* archive_counts = nullptr;  // [T], non-decreasing
  /// Band in float: keys as panels [ceil((lead + T) / kPageEntries)][head_dim][kPageEntries] (what
  /// lies past the last entry must be finite), values [lead + T][head_dim].
  const float* band_keys = nullptr;
  const float* band_values = nullptr;
  int lead = 0;
  int window = 0;
  const float* sinks = nullptr;  // [G] or null, as DecodeRow's
};

/// Exact sparse prefill: a tile of queries reads the archive (about 1/CR of the past) and its dense
/// band, never a T x T matrix.
void prefill_attention(Context& context, const AttentionShape& shape,
                       std::span<const PrefillHead> heads);

}  // namespace winnow::ops
