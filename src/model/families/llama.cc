// Llama 2, 3, 3.1 and 3.2 (Touvron et al. 2023, Grattafiori et al. 2024).
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_llama(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 2048});
  const bool attention_bias = config.boolean("attention_bias", false);
  const bool mlp_bias = config.boolean("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = attention_bias;
    attention.output_bias = attention_bias;
    layer.feed_forward.bias = mlp_bias;
  }
  return spec;
}

}  // namespace winnow::model
