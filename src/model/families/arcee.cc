// Arcee's AFM (2025): Llama's layers with a squared ReLU and no gate.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_arcee(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 4096, .activation = "relu2", .norm_eps = 1e-5});
  detail::set_biases(config, spec);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.gated = false;
  }
  return spec;
}

}  // namespace winnow::model
