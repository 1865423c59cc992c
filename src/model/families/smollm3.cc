// SmolLM3 (Hugging Face 2025): Llama's layers, every fourth one without RoPE.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {
namespace {

/// By layer: whether it has RoPE.
std::vector<bool> read_rope_layers(const JsonObject& config, int layers) {
  constexpr const char* kKey = "no_rope_layers";  // 1 for the others, despite its name
  const int interval = config.integer("no_rope_layer_interval", 1, detail::kMaxLayers, 4);
  std::vector<bool> rotates;
  const nlohmann::json* list = config.find(kKey);
  for (int i = 0; i < layers && list == nullptr; ++i) {
    rotates.push_back((i + 1) % interval != 0);
  }
  if (list == nullptr) {
    return rotates;
  }
  if (!list->is_array() || list->size() != static_cast<std::size_t>(layers)) {
    config.reject(kKey, fmt::format("a number for each of {} layers", layers));
  }
  for (const auto& value : *list) {
    require(value.is_number() || value.is_boolean(), "{}: {}: expected numbers, got {}",
            config.where(), kKey, described(value));
    rotates.push_back(value.is_boolean() ? value.get<bool>() : value != 0);
  }
  return rotates;
}

}  // namespace

ModelSpec describe_smollm3(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 32768, .kv_heads = 4, .rope = {.theta = 2000000.0}});
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  detail::set_biases(config, spec);
  const std::vector<bool> rotates = read_rope_layers(config, spec.layer_count());
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
