// Ministral (Mistral AI 2024): Mistral's layers, with a sliding window where "layer_types" says so.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_ministral(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 131072, .kv_heads = 8});
  detail::set_sliding_layers(config, spec, [](int) { return true; });
  return spec;
}

}  // namespace winnow::model
