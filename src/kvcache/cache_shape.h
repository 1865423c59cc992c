// The properties of a model that its cache needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvcache/recurrent_state.h"

namespace winnow::kvcache {

struct CacheShape {
  int layers = 0;  // that hold entries: recurrent ones have no place here
  int kv_heads = 0;
  int head_dim = 0;
  int group = 0;          // query heads per KV head
  float scale = 0.0F;     // of the scores; 0: 1 / sqrt(head_dim)
  float soft_cap = 0.0F;  // as in ops::AttentionShape
  bool sinks = false;     // query heads have sinks (ops::DecodeRow)
  /// By layer: a query sees the last `reach` tokens, its own included (a sliding window), or all of
  /// them (0, a full layer). Empty: all layers are full.
  std::vector<int> reach = {};
  StateShape states = {};  // of recurrent layers

  [[nodiscard]] int reach_of(int layer) const {
    return reach.empty() ? 0 : reach[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] bool has_sliding_layers() const {
    return std::ranges::any_of(reach, [](int tokens) { return tokens > 0; });
  }
  /// Entries that a head of a layer holds after `length` tokens in a dense cache.
  [[nodiscard]] int dense_entries(int layer, int length) const {
    const int most = reach_of(layer);
    return most > 0 ? std::min(length, most) : length;
  }
  /// The same over layers and heads.
  [[nodiscard]] std::int64_t dense_entries(int length) const {
    std::int64_t entries = 0;
    for (int layer = 0; layer < layers; ++layer) {
      entries += std::int64_t{kv_heads} * dense_entries(layer, length);
    }
    return entries;
  }
};

/// Throws Error unless `reach` names every layer's.
void validate(const CacheShape& shape);

}  // namespace winnow::kvcache
