#include "model/families/exaone_layers.h"

#include "model/families/sliding_layers.h"

namespace winnow::model::detail {

void set_exaone_layers(const JsonObject& config, ModelSpec& spec) {
  if (config.states("sliding_window") && !config.has("sliding_window")) {
    return;  // no layer slides
  }
  const bool has_types = config.has("layer_types");
  const int every = has_types ? 1 : config.integer("sliding_window_pattern", 1, 1 << 12, 4);
  const auto is_sliding = [every](int layer) { return (layer + 1) % every != 0; };
  const std::vector<bool> sliding = read_layer_types(config, spec, is_sliding);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) {
      std::get<AttentionSpec>(spec.layers[i].mixer).rope.reset();
    }
  }
  set_sliding_layers(config, spec, is_sliding);
}

}  // namespace winnow::model::detail
