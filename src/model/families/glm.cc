// GLM-4 (Zhipu AI 2024): interleaved RoPE of half of each head; gate and up are one tensor.
// GLM-4-0414 (glm4): also norms after attention and feed-forward.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {
namespace {

ModelSpec read_glm(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 131072,
                                    .head_dim = 128,
                                    .kv_heads = 2,
                                    .norm_eps = 1.5625e-07,
                                    .rope = {.partial = true, .share = 0.5, .interleaved = true}});
  const bool bias = config.boolean("attention_bias", true);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) { attention.qkv_bias = bias; });
  spec.names.joins_gate_up = true;
  return spec;
}

}  // namespace

ModelSpec describe_glm(const JsonObject& config) {
  return read_glm(config);
}

ModelSpec describe_glm4(const JsonObject& config) {
  ModelSpec spec = read_glm(config);
  spec.names.attention_post_norm = "post_self_attn_layernorm";
  spec.names.mlp_post_norm = "post_mlp_layernorm";
  for (LayerSpec& layer : spec.layers) {
    layer.norm_after = true;
  }
  return spec;
}

}  // namespace winnow::model
