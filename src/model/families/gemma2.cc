// Gemma 2 (Gemma Team 2024): norms around both parts, soft caps, every second layer sliding.
#include <cmath>

#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {
namespace {

/// A soft cap; null means none.
float read_cap(const JsonObject& config, const char* key, float absent) {
  return config.states(key) ? static_cast<float>(config.number(key, 0.0, 1e6, 0.0)) : absent;
}

}  // namespace

ModelSpec describe_gemma2(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 8192, .head_dim = 256, .kv_heads = 4});
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden));
  spec.final_soft_cap = read_cap(config, "final_logit_softcapping", 30.0F);
  spec.final_norm.kind = NormSpec::Kind::rms_plus_one;
  spec.names = {.attention_norm = "input_layernorm",
                .attention_post_norm = "post_attention_layernorm",
                .mlp_norm = "pre_feedforward_layernorm",
                .mlp_post_norm = "post_feedforward_layernorm"};
  for (LayerSpec& layer : spec.layers) {
    layer.norm.kind = NormSpec::Kind::rms_plus_one;
    layer.norm_after = true;
    layer.feed_forward.activation = config.has("hidden_activation")
                                        ? detail::read_activation(config, "hidden_activation")
                                        : ops::Activation::gelu_tanh;
  }
  const double width = config.number("query_pre_attn_scalar", 1.0, 1e6, 256.0);
  const float cap = read_cap(config, "attn_logit_softcapping", 50.0F);
  detail::for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.scale = static_cast<float>(1.0 / std::sqrt(width));
    attention.soft_cap = cap;
  });
  detail::set_sliding_layers(config, spec, [](int layer) { return layer % 2 == 0; });
  return spec;
}

}  // namespace winnow::model
