// Command R and R+, Aya (Cohere 2024): LayerNorm, attention and feed-forward side by side,
// interleaved RoPE. Command R7B and A (Cohere 2 in transformers): three of four layers slide, the
// others have no RoPE.
#include "model/config_fields.h"
#include "model/families/families.h"
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

}  // namespace winnow::model
