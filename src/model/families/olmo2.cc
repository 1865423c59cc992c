// OLMo 2 (Team OLMo 2024): norms behind the layer's parts only, and of all queries and all keys of
// a token together.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/olmo_layers.h"

namespace winnow::model {

ModelSpec describe_olmo2(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 2048, .norm_eps = 1e-5});
  detail::set_olmo_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
