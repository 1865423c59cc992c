// GLM-4.5, 4.6 and 4.7 (Zhipu AI 2025): RoPE of half of each head, optional norms of query and key
// heads, experts as in DeepSeek V3.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/shared_experts.h"

namespace winnow::model {

ModelSpec describe_glm4_moe(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 131072,
                                                 .kv_heads = 8,
                                                 .norm_eps = 1e-5,
                                                 .intermediate = 10944,
                                                 .rope = {.partial = true, .share = 0.5}});
  const bool bias = config.boolean("attention_bias", false);
  const bool norms = config.boolean("use_qk_norm", false);
  detail::for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = bias;
    if (norms) {
      attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    }
  });
  detail::set_shared_experts(
      config, spec,
      {.count = 128, .active = 8, .shared = 1, .intermediate = 1408, .dense_layers = 1});
  return spec;
}

}  // namespace winnow::model
