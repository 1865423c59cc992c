// The shape of the small models that tests draw weights for.
#pragma once

#include "checkpoint/config.h"
#include "kvcache/rule.h"

namespace winnow::testing {

inline constexpr int kTinyWindow = 5;  // of tiny_model() with DMS

/// Of a model that was taught to compress by `rule`, if that is something to be taught.
inline ModelConfig tiny_model(kvcache::RuleKind rule, int max_positions = 512) {
  ModelConfig config;
  config.hidden = 32;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.intermediate = 48;
  config.vocab = 64;
  config.max_positions = max_positions;
  if (rule == kvcache::RuleKind::dms) {
    config.dms = DmsConfig{.window = kTinyWindow, .source = DmsConfig::Source::borrowed};
  } else if (rule == kvcache::RuleKind::dmc) {
    config.dmc = DmcConfig{.offset = 0.0F};  // merges about every other token
  }
  return config;
}

}  // namespace winnow::testing
