// Gemma 2 (Gemma Team 2024): norms before and after each part whose weights count from 1, a GELU
// gate, capped scores and logits, every other layer with a sliding window, scaled embeddings.
#include <cmath>

#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_gemma2(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 8192,
                                                 .head_dim = 256,
                                                 .tied_embeddings = true,
                                                 .activation_key = "hidden_activation"});
  const double scalar = config.number("query_pre_attn_scalar", 1.0, 1e6, 256.0);
  const float soft_cap = static_cast<float>(config.number("attn_logit_softcapping", 0.0, 1e6, 0.0));
  const bool bias = config.boolean("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    layer.norm.kind = NormSpec::Kind::rms_plus_one;
    layer.norm_after = true;
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.scale = static_cast<float>(1.0 / std::sqrt(scalar));
    attention.soft_cap = soft_cap;
    attention.qkv_bias = bias;
    attention.output_bias = bias;
  }
  detail::set_sliding_layers(config, spec, [](int layer) { return layer % 2 == 0; });
  spec.final_norm.kind = NormSpec::Kind::rms_plus_one;
  spec.final_soft_cap = static_cast<float>(config.number("final_logit_softcapping", 0.0, 1e6, 0.0));
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden));
  spec.names = {.attention_norm = "input_layernorm",
                .attention_post_norm = "post_attention_layernorm",
                .mlp_norm = "pre_feedforward_layernorm",
                .mlp_post_norm = "post_feedforward_layernorm"};
  return spec;
}

}  // namespace winnow::model
