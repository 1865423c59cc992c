// Granite 3 (IBM Granite Team 2024): Llama's layers with multipliers in four places.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/granite_layers.h"

namespace winnow::model {

ModelSpec describe_granite(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 2048});
  const auto multiplier = [&](const char* key) {
    return static_cast<float>(config.number(key, -1e6, 1e6, 1.0));
  };
  const auto divisor = static_cast<float>(config.number("logits_scaling", 1e-6, 1e6, 1.0));
  spec.embedding_multiplier = multiplier("embedding_multiplier");
  spec.logit_multiplier = 1.0F / divisor;
  detail::set_biases(config, spec);
  for (LayerSpec& layer : spec.layers) {
    layer.residual_multiplier = multiplier("residual_multiplier");
    std::get<AttentionSpec>(layer.mixer).scale = multiplier("attention_multiplier");
  }
  return spec;
}

ModelSpec describe_granite_swa(const JsonObject& config) {
  nlohmann::json document = config.document();
  document.emplace("max_position_embeddings", 8192);
  document.emplace("num_key_value_heads", 4);
  document.emplace("rms_norm_eps", 1e-5);
  document.emplace("tie_word_embeddings", true);
  ModelSpec spec = describe_granite(JsonObject(document, config.where()));
  detail::set_granite_sliding_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
