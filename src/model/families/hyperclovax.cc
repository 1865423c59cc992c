// HyperCLOVA X SEED (NAVER 2025): Granite's multipliers; also norms after both parts of a layer.
#include <cmath>

#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_hyperclovax(const JsonObject& config) {
  ModelSpec spec = describe_granite(config);
  spec.logit_multiplier = static_cast<float>(config.number("logits_scaling", -1e6, 1e6, 1.0));
  if (!config.has("attention_multiplier")) {
    detail::for_each_attention(spec, [](AttentionSpec& attention) {
      attention.scale = 1.0F / std::sqrt(static_cast<float>(attention.head_dim));
    });
  }
  if (config.boolean("use_post_norm", true)) {
    spec.names.attention_post_norm = "post_norm1";
    spec.names.mlp_post_norm = "post_norm2";
    for (LayerSpec& layer : spec.layers) {
      layer.norm_after = true;
    }
  }
  return spec;
}

}  // namespace winnow::model
