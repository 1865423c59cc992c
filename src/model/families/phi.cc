// Phi-1, 1.5 and 2 (Microsoft 2023): LayerNorm, parallel attention and feed-forward, partial
// RoPE, a GELU without a gate, biases everywhere.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_phi(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 2048,
                                                 .activation = "gelu_new",
                                                 .norm = NormSpec::Kind::layer,
                                                 .norm_bias = true,
                                                 .norm_eps_key = "layer_norm_eps",
                                                 .norm_eps = 1e-5,
                                                 .rope = {.partial = true, .share = 0.5}});
  require(!config.boolean("qk_layernorm", false),
          "{}: qk_layernorm: true is not supported for this family", config.where());
  spec.head_bias = true;
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = true;
    layer.shares_norm = true;
    layer.feed_forward.gated = false;
    layer.feed_forward.bias = true;
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = true;
    attention.output_bias = true;
  }
  spec.names.renamed = {{"self_attn.o_proj.", "self_attn.dense."},
                        {"mlp.up_proj.", "mlp.fc1."},
                        {"mlp.down_proj.", "mlp.fc2."},
                        {"model.norm.", "model.final_layernorm."}};
  return spec;
}

}  // namespace winnow::model
