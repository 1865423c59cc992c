// The descriptions of small models with random weights.
#pragma once

#include <optional>
#include <string>

#include "kvcache/rule.h"
#include "model/spec_of.h"

namespace winnow::testing {

inline constexpr int kTinyWindow = 5;  // the DMS window of tiny_model()

/// The same model, retrofitted for `rule` if the rule needs that.
inline model::ModelSpec taught(kvcache::RuleKind rule, model::ModelSpec config) {
  if (kvcache::traits_of(rule).marks) {
    config.dms =
        model::DmsConfig{.window = kTinyWindow, .source = model::DmsConfig::Source::borrowed};
  } else if (kvcache::traits_of(rule).merges) {
    config.dmc = model::DmcConfig{.offset = 0.0F};  // offset 0 merges about every other token
  }
  return config;
}

inline model::ModelSpec tiny_model(kvcache::RuleKind rule, const Sizes& sizes = {},
                                   const std::string& family = "llama") {
  return taught(rule, spec_of(family, sizes));
}

/// A kind of recurrent layers; nullopt for models without them.
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

/// Two recurrent layers, each followed by attention.
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
