// Llama 2, 3, 3.1 and 3.2 (Touvron et al. 2023, Grattafiori et al. 2024).
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_llama(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 2048});
  detail::set_biases(config, spec);
  return spec;
}

}  // namespace winnow::model
