// GPT-J (EleutherAI 2021): LayerNorm, parallel attention and feed-forward with a common norm,
// interleaved RoPE of some channels, a GELU without a gate, a bias of the logits.
#include <algorithm>

#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_gptj(const JsonObject& config) {
  nlohmann::json named = detail::with_keys(config, {{"hidden_size", "n_embd"},
                                                    {"num_attention_heads", "n_head"},
                                                    {"num_hidden_layers", "n_layer"},
                                                    {"max_position_embeddings", "n_positions"},
                                                    {"intermediate_size", "n_inner"},
                                                    {"hidden_act", "activation_function"}});
  const JsonObject read(named, config.where());
  const int heads = read.integer("num_attention_heads", 1, detail::kMaxHeads);
  const int width = read.integer("hidden_size", 1, detail::kMaxHidden) / heads;
  named.emplace("rotary_dim", std::min(64, width));
  ModelSpec spec = detail::read_decoder(
      read, {.max_positions = 2048,
             .activation = "gelu_new",
             .norm = NormSpec::Kind::layer,
             .norm_bias = true,
             .norm_eps_key = "layer_norm_epsilon",
             .norm_eps = 1e-5,
             .intermediate = 1,
             .rope = {.partial = true, .interleaved = true, .channels_key = "rotary_dim"}});
  spec.head_bias = true;
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = true;
    layer.shares_norm = true;
    layer.feed_forward.gated = false;
    layer.feed_forward.bias = true;
    if (!config.has("n_inner")) {
      layer.feed_forward.intermediate = std::min(4 * spec.hidden, detail::kMaxIntermediate);
    }
  }
  spec.names.attention_norm = "ln_1";
  spec.names.renamed = {{"model.layers.", "transformer.h."},
                        {"model.embed_tokens.", "transformer.wte."},
                        {"model.norm.", "transformer.ln_f."},
                        {".self_attn.o_proj.", ".attn.out_proj."},
                        {".self_attn.", ".attn."},
                        {"mlp.up_proj.", "mlp.fc_in."},
                        {"mlp.down_proj.", "mlp.fc_out."}};
  return spec;
}

}  // namespace winnow::model
