// Small states for tests of files.
#pragma once

#include <string>

#include "engine/state_file.h"
#include "kvcache/sequence_cache.h"

namespace winnow::engine::testing {

inline kvcache::CacheShape small_shape() {
  kvcache::CacheShape shape{.layers = 2, .kv_heads = 2, .head_dim = 16, .group = 1};
  shape.states = {.layers = 1, .floats = 5};
  return shape;
}

inline EngineConfig dms_config() {
  EngineConfig config;
  config.cache = {.rule = kvcache::RuleKind::dms,
                  .format = ops::EntryFormat::bf16,
                  .max_bytes = std::size_t{1} << 22,
                  .window = 9};
  return config;
}

inline StateKind dms_kind(const std::string& model) {
  return {model, small_shape(), dms_config()};
}

/// A state of tokens 0, 1, 2 ... or, with `first`, of those from `first` on.
inline SavedState dms_state(int length, int first = 0) {
  kvcache::Cache cache(dms_config().cache, small_shape());
  kvcache::SequenceCache sequence(cache, {});
  SavedState state;
  for (int t = 0; t < length; ++t) {
    state.tokens.push_back(first + t);
    sequence.state().layer(0)[static_cast<std::size_t>(t % 5)] = 0.5F * static_cast<float>(t);
    std::vector<float> key(16, static_cast<float>(t));
    for (int row = 0; row < 4; ++row) {
      key[0] = static_cast<float>(row);
      sequence.head(row / 2, row % 2)
          .append(sequence.rule(), {.key = key, .value = key, .decision = t % (row + 2) == 0});
    }
  }
  state.cache = kvcache::save(sequence);
  return state;
}

}  // namespace winnow::engine::testing
