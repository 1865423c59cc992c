// Mellum 2 (JetBrains 2026): Qwen 3's layers, all with experts; sliding layers have a RoPE of
// their own.
#include <algorithm>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/qwen_experts.h"
#include "model/families/shared_experts.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_mellum(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 131072, .head_dim = 128, .kv_heads = 4, .one_rope = false});
  const bool bias = config.boolean("attention_bias", false);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    attention.qkv_bias = bias;
    attention.output_bias = bias;
  });
  const std::vector<bool> sparse = detail::read_expert_layers(config, spec.layer_count(), 0);
  require(std::ranges::find(sparse, false) == sparse.end(),
          "{}: mlp_layer_types: dense layers are not supported", config.where());
  detail::set_qwen_experts(config, spec, {.count = 64, .active = 8, .normalized = true}, 896);
  const auto none = [](int) { return false; };
  detail::set_layer_ropes(config, spec, detail::read_layer_types(config, spec, none),
                          {.theta = 500000.0}, {.theta = 10000.0});
  detail::set_sliding_layers(config, spec, none, 1024);
  return spec;
}

}  // namespace winnow::model
