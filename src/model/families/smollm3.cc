// SmolLM3 (Hugging Face 2025): Llama's layers, every fourth one without RoPE.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/rope_layers.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_smollm3(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 32768, .kv_heads = 4, .rope = {.theta = 2000000.0}});
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  detail::set_biases(config, spec);
  const std::vector<bool> rotates = detail::read_rope_layers(config, spec.layer_count());
  if (config.has("sliding_window") && config.boolean("use_sliding_window", false)) {
    detail::set_sliding_layers(
        config, spec, [&](int layer) { return !rotates[static_cast<std::size_t>(layer)]; });
  }
  for (std::size_t i = 0; i < rotates.size(); ++i) {
    if (!rotates[i]) {
      std::get<AttentionSpec>(spec.layers[i].mixer).rope.reset();
    }
  }
  return spec;
}

}  // namespace winnow::model
