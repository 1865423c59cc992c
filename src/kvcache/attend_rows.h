// The part of append_and_attend() that takes one token of each sequence at a time.
#pragma once

#include <span>

#include "kvcache/attend.h"

namespace winnow::kvcache {

/// Row `row` of a chunk as head `head` receives it.
inline Token token_of(const LayerChunk& chunk, std::size_t row, int head) {
  const auto h = static_cast<std::size_t>(head);
  const auto dim = static_cast<std::size_t>(chunk.sequence->cache().shape().head_dim);
  Token token{chunk.keys.row(row).subspan(h * dim, dim),
              chunk.values.row(row).subspan(h * dim, dim)};
  if (chunk.decisions.data != nullptr) {
    token.decision = chunk.decisions.row(row)[h] != 0;
  }
  if (chunk.logits.data != nullptr) {
    token.logit = chunk.logits.row(row)[h];
  }
  if (chunk.omegas.data != nullptr) {
    token.omega = chunk.omegas.row(row)[h];
  }
  return token;
}

/// The queries of head `head`'s group in row `row` of a chunk.
inline std::span<const float> queries_of(const LayerChunk& chunk, std::size_t row, int layer,
                                         int head) {
  const CacheShape& shape = chunk.sequence->cache().shape();
  const auto width = static_cast<std::size_t>(shape.group_of(layer) * shape.head_dim);
  return chunk.queries.row(row).subspan(static_cast<std::size_t>(head) * width, width);
}

/// The sinks of a KV head's query heads in a layer, or null.
inline const float* sinks_of(const LayerChunk& chunk, int layer, int head) {
  return chunk.sinks != nullptr
             ? chunk.sinks + head * chunk.sequence->cache().shape().group_of(layer)
             : nullptr;
}

/// append_and_attend() for chunks of one token: decode, everything under context.deterministic, and
/// tokens whose attention, or whose place in the cache, decides what later tokens see.
void append_and_attend_tokens(ops::Context& context, int layer, std::span<const LayerChunk> tokens);

/// Attention of tokens over what the layer's cache holds, which includes the tokens.
void attend_tokens(ops::Context& context, int layer, std::span<const LayerChunk> tokens);

}  // namespace winnow::kvcache
