// The shape of the small models that tests draw weights for.
#pragma once

#include <optional>
#include <string>

#include "kvcache/rule.h"
#include "model/spec_of.h"

namespace winnow::testing {

inline constexpr int kTinyWindow = 5;  // of tiny_model() with DMS

/// The same model, taught to compress by `rule`, if that is something to be taught.
inline model::ModelSpec taught(kvcache::RuleKind rule, model::ModelSpec config) {
  if (kvcache::traits_of(rule).marks) {
    config.dms =
        model::DmsConfig{.window = kTinyWindow, .source = model::DmsConfig::Source::borrowed};
  } else if (kvcache::traits_of(rule).merges) {
    config.dmc = model::DmcConfig{.offset = 0.0F};  // merges about every other token
  }
  return config;
}

inline model::ModelSpec tiny_model(kvcache::RuleKind rule, const Sizes& sizes = {},
                                   const std::string& family = "llama") {
  return taught(rule, spec_of(family, sizes));
}

/// Kinds of recurrent layers; nothing for models without them.
using Recurrent = std::optional<model::RecurrentSpec::Kind>;

inline constexpr model::RecurrentSpec::Kind kRecurrentKinds[] = {
    model::RecurrentSpec::Kind::delta_net, model::RecurrentSpec::Kind::short_conv,
    model::RecurrentSpec::Kind::state_space};

inline std::string recurrent_name(model::RecurrentSpec::Kind kind) {
  using Kind = model::RecurrentSpec::Kind;
  return kind == Kind::delta_net    ? "delta_net"
         : kind == Kind::short_conv ? "short_conv"
                                    : "state_space";
}

/// Two recurrent layers, each before one of attention.
inline model::ModelSpec tiny_hybrid(kvcache::RuleKind rule, model::RecurrentSpec::Kind kind,
                                    int max_positions = 512) {
  const Sizes sizes{.layers = 4, .max_positions = max_positions};
  if (kind == model::RecurrentSpec::Kind::delta_net) {
    return taught(rule, spec_of("qwen3_5_text", sizes, hybrid_keys()));
  }
  const bool conv = kind == model::RecurrentSpec::Kind::short_conv;
  for (const auto& [family, keys] : recurrent_cousins(sizes.layers)) {
    if (family == std::string(conv ? "lfm2" : "bamba")) {
      return taught(rule, spec_of(family, sizes, keys));
    }
  }
  return {};
}

}  // namespace winnow::testing
