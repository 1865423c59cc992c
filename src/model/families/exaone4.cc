// EXAONE 4 (LG AI Research 2025): norms behind the layer's parts only and of query and key heads;
// where layers slide, the full ones have no RoPE.
#include "model/families/families.h"
#include "model/families/olmo_layers.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_exaone4(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 2048, .kv_heads = 32, .norm_eps = 1e-5});
  detail::set_norms_behind_parts(spec);
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
  });
  if (config.states("sliding_window") && !config.has("sliding_window")) {
    return spec;  // no layer slides
  }
  const bool has_types = config.has("layer_types");
  const int every = has_types ? 1 : config.integer("sliding_window_pattern", 1, 1 << 12, 4);
  const auto is_sliding = [every](int layer) { return (layer + 1) % every != 0; };
  const std::vector<bool> sliding = detail::read_layer_types(config, spec, is_sliding);
  for (std::size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) {
      std::get<AttentionSpec>(spec.layers[i].mixer).rope.reset();
    }
  }
  detail::set_sliding_layers(config, spec, is_sliding);
  return spec;
}

}  // namespace winnow::model
