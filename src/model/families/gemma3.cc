// Gemma 3 (Gemma Team 2025): Gemma 2's layers with norms of query and key heads instead of a soft
// cap of scores; five of six layers have a sliding window and a RoPE of their own.
#include "base/error.h"
#include "model/families/families.h"
#include "model/families/gemma_layers.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_gemma3(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 131072, .head_dim = 256, .kv_heads = 4, .one_rope = false});
  detail::set_gemma_layers(config, spec);
  require(!config.boolean("use_bidirectional_attention", false),
          "{}: use_bidirectional_attention: winnow computes causal attention only", config.where());
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    attention.soft_cap = 0.0F;  // transformers reads the key but does not use it
  });
  const int every = config.integer("sliding_window_pattern", 1, detail::kMaxLayers, 6);
  const auto is_sliding = [every](int layer) { return (layer + 1) % every != 0; };
  detail::set_layer_ropes(config, spec, detail::read_layer_types(config, spec, is_sliding),
                          {.theta = 1000000.0}, {.theta_key = "rope_local_base_freq"});
  detail::set_sliding_layers(config, spec, is_sliding);
  return spec;
}

}  // namespace winnow::model
