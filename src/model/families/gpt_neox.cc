// GPT-NeoX and Pythia (EleutherAI 2022, 2023): LayerNorm, parallel attention and feed-forward with
// a norm each, RoPE of a quarter of each head, a GELU without a gate, biases.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_gpt_neox(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 2048,
               .activation = "gelu",
               .norm = NormSpec::Kind::layer,
               .norm_bias = true,
               .norm_eps_key = "layer_norm_eps",
               .norm_eps = 1e-5,
               .intermediate = 24576,
               .rope = {.theta_key = "rotary_emb_base",
                        .partial = true,
                        .share = config.number("rotary_pct", 0.0, 1.0, 0.25)}});
  const bool parallel = config.boolean("use_parallel_residual", true);
  const bool bias = config.boolean("attention_bias", true);
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = parallel;
    layer.feed_forward.gated = false;
    layer.feed_forward.bias = true;
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.kv_heads = attention.heads;  // transformers' class supports no other number
    attention.qkv_bias = bias;
    attention.output_bias = bias;
  }
  spec.names.joins_heads = true;
  spec.names.renamed = {{"model.layers.", "gpt_neox.layers."},
                        {"model.embed_tokens.", "gpt_neox.embed_in."},
                        {"model.norm.", "gpt_neox.final_layer_norm."},
                        {"lm_head.", "embed_out."},
                        {"self_attn.o_proj.", "attention.dense."},
                        {"self_attn.query_key_value.", "attention.query_key_value."},
                        {"mlp.up_proj.", "mlp.dense_h_to_4h."},
                        {"mlp.down_proj.", "mlp.dense_4h_to_h."}};
  return spec;
}

}  // namespace winnow::model
