// OLMo 2 (Team OLMo 2024): norms only after attention and feed-forward; one norm over all query
// heads and one over all key heads.
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
