#include "model/families/olmo_layers.h"

namespace winnow::model::detail {

void set_norms_behind_parts(ModelSpec& spec) {
  spec.names = {.attention_norm = "",
                .attention_post_norm = "post_attention_layernorm",
                .mlp_norm = "",
                .mlp_post_norm = "post_feedforward_layernorm"};
  for (LayerSpec& layer : spec.layers) {
    layer.norm_before = false;
    layer.norm_after = true;
  }
}

void set_olmo_layers(const JsonObject& config, ModelSpec& spec) {
  set_biases(config, spec, {.mlp = false});
  set_norms_behind_parts(spec);
  for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::whole;
  });
}

}  // namespace winnow::model::detail
