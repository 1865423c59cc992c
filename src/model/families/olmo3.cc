// OLMo 3 (Team OLMo 2025): OLMo 2's layers, three of four with a sliding window; only the full ones
// have a scaled RoPE.
#include "model/families/families.h"
#include "model/families/olmo_layers.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_olmo3(const JsonObject& config) {
  constexpr double kTheta = 500000.0;
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 2048, .norm_eps = 1e-5, .one_rope = false});
  detail::set_olmo_layers(config, spec);
  const auto is_sliding = [](int layer) { return (layer + 1) % 4 != 0; };
  // As in transformers, "rope_theta" applies to full layers only.
  detail::set_layer_ropes(config, spec, detail::read_layer_types(config, spec, is_sliding),
                          {.theta = kTheta}, {.theta = kTheta, .theta_key = nullptr});
  detail::set_sliding_layers(config, spec, is_sliding);
  return spec;
}

}  // namespace winnow::model
