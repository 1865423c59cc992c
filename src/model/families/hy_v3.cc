// Hunyuan 3 (Tencent 2026): Q/K norm per head, DeepSeek V3's experts with other tensor names.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/shared_experts.h"

namespace winnow::model {

ModelSpec describe_hy_v3(const JsonObject& config) {
  const nlohmann::json document =
      detail::with_keys(config, {{"routed_scaling_factor", "router_scaling_factor"}});
  const JsonObject named(document, config.where());
  ModelSpec spec = detail::read_decoder(named, {.max_positions = 131072,
                                                .head_dim = 128,
                                                .kv_heads = 8,
                                                .norm_eps = 1e-5,
                                                .rope = {.theta = 11158840.0}});
  detail::set_biases(named, spec);
  require(!spec.layers.front().feed_forward.bias, "{}: mlp_bias: true is not supported",
          config.where());
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
  });
  detail::set_shared_experts(named, spec,
                             {.count_key = "num_experts",
                              .shared_key = "num_shared_experts",
                              .count = 192,
                              .active = 8,
                              .shared = 1,
                              .intermediate = 1536,
                              .dense_layers = 1,
                              .scale = 2.826});
  spec.names.router = "router.gate";
  spec.names.shared_expert = "shared_mlp";
  spec.names.choice_bias = "expert_bias";
  return spec;
}

}  // namespace winnow::model
