// The shape of the small models that tests draw weights for.
#pragma once

#include "kvcache/rule.h"
#include "model/spec_of.h"

namespace winnow::testing {

inline constexpr int kTinyWindow = 5;  // of tiny_model() with DMS

/// The same model, taught to compress by `rule`, if that is something to be taught.
inline model::ModelSpec taught(kvcache::RuleKind rule, model::ModelSpec config) {
  if (rule == kvcache::RuleKind::dms) {
    config.dms =
        model::DmsConfig{.window = kTinyWindow, .source = model::DmsConfig::Source::borrowed};
  } else if (rule == kvcache::RuleKind::dmc) {
    config.dmc = model::DmcConfig{.offset = 0.0F};  // merges about every other token
  }
  return config;
}

inline model::ModelSpec tiny_model(kvcache::RuleKind rule, const Sizes& sizes = {},
                                   const std::string& family = "llama") {
  return taught(rule, spec_of(family, sizes));
}

/// Two recurrent layers, each before one of attention.
inline model::ModelSpec tiny_hybrid(kvcache::RuleKind rule) {
  return taught(rule, spec_of("qwen3_5_text", {.layers = 4}, hybrid_keys()));
}

}  // namespace winnow::testing
