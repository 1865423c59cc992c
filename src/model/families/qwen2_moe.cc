// Qwen 1.5 and 2 with experts (Yang et al. 2024): Qwen 2's layers, with routed experts and a gated
// shared expert.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/qwen_experts.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_qwen2_moe(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 32768, .kv_heads = 16});
  const bool bias = config.boolean("qkv_bias", true);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) { attention.qkv_bias = bias; });
  detail::set_qwen_experts(
      config, spec, {.count = 60, .active = 4, .shared_intermediate = 5632, .shared_gate = true},
      1408);
  detail::set_alternate_sliding_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
