// Helium (Kyutai 2025): Llama's layers with interleaved RoPE.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_helium(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 4096,
                                                 .kv_heads = 20,
                                                 .norm_eps = 1e-8,
                                                 .rope = {.theta = 100000.0, .interleaved = true}});
  const bool bias = config.boolean("attention_bias", false);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) { attention.qkv_bias = bias; });
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.bias = config.boolean("mlp_bias", false);
  }
  return spec;
}

}  // namespace winnow::model
