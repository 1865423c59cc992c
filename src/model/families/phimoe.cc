// Phi-3.5-MoE (Microsoft 2024): LayerNorm, sixteen experts, two per token by SparseMixer (Liu et
// al. 2024); LongRoPE with its attention factors in config.json.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_phimoe(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 131072,
                                                 .kv_heads = 8,
                                                 .norm = NormSpec::Kind::layer,
                                                 .norm_bias = true,
                                                 .norm_eps = 1e-5,
                                                 .rope = {.theta = 1000000.0, .mscales = true}});
  spec.head_bias = config.boolean("lm_head_bias", false);
  detail::set_biases(config, spec, {.mlp = false});
  const int active = config.integer("num_experts_per_tok", 1, detail::kMaxExperts, 2);
  require(active == 2, "{}: num_experts_per_tok {} is not supported for this family, expected 2",
          config.where(), active);
  const double jitter = config.number("router_jitter_noise", 0.0, 1.0, 0.01);
  const ExpertsSpec experts{
      .count = config.integer("num_local_experts", active, detail::kMaxExperts, 16),
      .active = active,
      .score = ops::RouterScore::sparse_mixer,
      .nearness = static_cast<float>(2.0 * jitter)};
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.experts = experts;
  }
  spec.names.feed_forward = "block_sparse_moe";
  spec.names.expert_gate = "w1";
  spec.names.expert_up = "w3";
  spec.names.expert_down = "w2";
  if (config.has("sliding_window")) {
    detail::set_sliding_layers(config, spec, [](int) { return true; });
  }
  return spec;
}

}  // namespace winnow::model
