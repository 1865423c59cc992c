// StableLM (Stability AI 2023, 2024): LayerNorm, partial RoPE; some sizes have parallel attention
// and feed-forward.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_stablelm(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 4096,
                                                 .kv_heads = 32,
                                                 .norm = NormSpec::Kind::layer,
                                                 .norm_bias = true,
                                                 .norm_eps_key = "layer_norm_eps",
                                                 .norm_eps = 1e-5,
                                                 .rope = {.partial = true, .share = 0.25}});
  require(!config.boolean("qk_layernorm", false),
          "{}: qk_layernorm: true is not supported for this family", config.where());
  const bool bias = config.boolean("use_qkv_bias", false);
  const bool parallel = config.boolean("use_parallel_residual", false);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) { attention.qkv_bias = bias; });
  for (LayerSpec& layer : spec.layers) {
    layer.parallel = parallel;
    layer.shares_norm = parallel;
  }
  return spec;
}

}  // namespace winnow::model
