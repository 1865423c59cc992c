// Nemotron 4 and Minitron (NVIDIA 2024): LayerNorm with weights stored minus 1, partial RoPE, a
// squared ReLU without a gate.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_nemotron(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 4096,
                                                 .activation = "relu2",
                                                 .norm = NormSpec::Kind::layer_plus_one,
                                                 .norm_bias = true,
                                                 .norm_eps_key = "norm_eps",
                                                 .norm_eps = 1e-5,
                                                 .rope = {.partial = true, .share = 0.5}});
  detail::set_biases(config, spec);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.gated = false;
  }
  return spec;
}

}  // namespace winnow::model
