// Qwen 3 with experts (Yang et al. 2025): Qwen 3's attention, 128 experts; a token takes 8.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/qwen_experts.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_qwen3_moe(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 32768, .kv_heads = 4});
  const bool bias = config.boolean("attention_bias", false);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    attention.qkv_bias = bias;
    attention.output_bias = bias;
  });
  detail::set_qwen_experts(config, spec, {.count = 128, .active = 8}, 768);
  if (config.boolean("use_sliding_window", false)) {
    detail::set_sliding_layers(config, spec, [](int) { return true; });
  }
  return spec;
}

}  // namespace winnow::model
