// Mixtral (Jiang et al. 2024): Mistral's layers with eight experts; a token takes two of them.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_mixtral(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config,
      {.max_positions = 131072, .kv_heads = 8, .norm_eps = 1e-5, .rope = {.theta = 1000000.0}});
  const int count = config.integer("num_local_experts", 1, detail::kMaxExperts, 8);
  const ExpertsSpec experts{.count = count,
                            .active = config.integer("num_experts_per_tok", 1, count, 2),
                            .normalized = true};
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.experts = experts;
  }
  spec.names.feed_forward = "block_sparse_moe";
  spec.names.expert_gate = "w1";
  spec.names.expert_up = "w3";
  spec.names.expert_down = "w2";
  if (config.has("sliding_window")) {  // unlike Mistral, no window if the key is absent
    detail::set_sliding_layers(config, spec, [](int) { return true; });
  }
  return spec;
}

}  // namespace winnow::model
