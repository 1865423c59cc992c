// Command R and R+, Aya (Cohere 2024): LayerNorm, parallel attention and feed-forward, interleaved
// RoPE. Command R7B and A (Cohere 2 in transformers): three of four layers have a sliding window,
// the others have no RoPE. Cohere 2 with experts: the first layers may be dense.
#include <algorithm>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/shared_experts.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {
namespace {

ModelSpec read_cohere(const JsonObject& config, double theta) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 8192,
                                                 .norm = NormSpec::Kind::layer,
                                                 .norm_eps_key = "layer_norm_eps",
                                                 .norm_eps = 1e-5,
                                                 .rope = {.theta = theta, .interleaved = true}});
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  spec.logit_multiplier = static_cast<float>(config.number("logit_scale", -1e6, 1e6, 0.0625));
  detail::set_biases(config, spec, {.mlp = false});
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = true;
    layer.shares_norm = true;
  }
  return spec;
}

ExpertsSpec read_cohere_experts(const JsonObject& config, const FeedForwardSpec& what) {
  constexpr const char* kScore = "expert_selection_fn";
  constexpr const char* kJoin = "shared_expert_combination_strategy";
  ExpertsSpec experts;
  experts.count = config.integer("num_experts", 1, detail::kMaxExperts, 8);
  experts.active = config.integer("num_experts_per_tok", 1, experts.count, 2);
  const std::string score = config.text(kScore, "softmax");
  require(score == "softmax" || score == "sigmoid",
          "{}: {} {} is not supported, expected \"softmax\" or \"sigmoid\"", config.where(), kScore,
          in_quotes(score));
  const bool softmax = score == "softmax";
  experts.score = softmax ? ops::RouterScore::softmax_of_chosen : ops::RouterScore::sigmoid;
  experts.normalized = !softmax && config.boolean("norm_topk_prob", true);
  const int shared = config.integer("num_shared_experts", 0, detail::kMaxExperts, 0);
  const std::string join = config.text(kJoin, "average");
  require(shared == 0 || join == "sum", "{}: {} {} is not supported, expected \"sum\"",
          config.where(), kJoin, in_quotes(join));
  experts.shared_intermediate = shared * what.intermediate;
  return experts;
}

void set_rms_norms(ModelSpec& spec, float eps) {
  spec.final_norm = {.kind = NormSpec::Kind::rms, .eps = eps};
  for (LayerSpec& layer : spec.layers) {
    layer.norm = spec.final_norm;
  }
}

}  // namespace

ModelSpec describe_cohere(const JsonObject& config) {
  ModelSpec spec = read_cohere(config, 500000.0);
  if (config.boolean("use_qk_norm", false)) {
    detail::for_each_attention(spec, [](AttentionSpec& attention) {
      attention.query_key_norm = AttentionSpec::QueryKeyNorm::own_per_head;
    });
  }
  return spec;
}

ModelSpec describe_cohere2(const JsonObject& config) {
  ModelSpec spec = read_cohere(config, 10000.0);
  const int every = config.integer("sliding_window_pattern", 1, detail::kMaxLayers, 4);
  const auto is_sliding = [every](int layer) { return (layer + 1) % every != 0; };
  const std::vector<bool> sliding = detail::read_layer_types(config, spec, is_sliding);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i] || (config.states("sliding_window") && !config.has("sliding_window"))) {
      std::get<AttentionSpec>(spec.layers[i].mixer).rope.reset();
    }
  }
  detail::set_sliding_layers(config, spec, is_sliding);
  return spec;
}

ModelSpec describe_cohere2_moe(const JsonObject& config) {
  ModelSpec spec = read_cohere(config, 10000.0);
  const std::vector<bool> sparse = detail::read_expert_layers(config, spec.layer_count(), 0);
  const auto dense = static_cast<int>(std::ranges::count(sparse, false));
  const int every = config.integer("sliding_window_pattern", 1, detail::kMaxLayers, 4);
  const int every_dense =
      config.integer("prefix_dense_sliding_window_pattern", 1, detail::kMaxLayers, 1);
  const auto is_sliding = [=](int layer) {
    return layer < dense ? (layer + 1) % every_dense != 0 : (layer - dense + 1) % every != 0;
  };
  const std::vector<bool> sliding = detail::read_layer_types(config, spec, is_sliding);
  const ExpertsSpec experts = read_cohere_experts(config, spec.layers.front().feed_forward);
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    if (!sliding[i] && (sparse[i] || every_dense != 1)) {
      std::get<AttentionSpec>(layer.mixer).rope.reset();
    }
    if (sparse[i]) {
      layer.feed_forward.experts = experts;
    } else {
      layer.feed_forward.intermediate =
          config.integer("prefix_dense_intermediate_size", 1, detail::kMaxIntermediate,
                         layer.feed_forward.intermediate);
    }
  }
  if (config.has("rms_norm_eps")) {
    set_rms_norms(spec, static_cast<float>(config.number("rms_norm_eps", 0.0, 1.0, 1e-5)));
  }
  spec.names.shared_expert = "shared_experts";
  detail::set_sliding_layers(config, spec, is_sliding);
  return spec;
}

}  // namespace winnow::model
