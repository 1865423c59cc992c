// Jais 2 (Inception 2025): LayerNorm, a squared ReLU without a gate, biases.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_jais2(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 8192,
                                                 .activation = "relu2",
                                                 .norm = NormSpec::Kind::layer,
                                                 .norm_bias = true,
                                                 .norm_eps_key = "layer_norm_eps",
                                                 .norm_eps = 1e-5});
  detail::set_biases(config, spec, {.attention = true});
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.gated = false;
    layer.feed_forward.bias = config.boolean("mlp_bias", true);
  }
  return spec;
}

}  // namespace winnow::model
