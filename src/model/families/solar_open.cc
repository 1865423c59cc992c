// Solar Open (Upstage 2026): Llama's layers, all with experts as in DeepSeek V3.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/shared_experts.h"

namespace winnow::model {

ModelSpec describe_solar_open(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 131072,
                                                 .head_dim = 128,
                                                 .kv_heads = 8,
                                                 .norm_eps = 1e-5,
                                                 .intermediate = 1280,
                                                 .rope = {.theta = 1000000.0}});
  const bool bias = config.boolean("attention_bias", false);
  detail::for_each_attention(spec, [bias](AttentionSpec& attention) { attention.qkv_bias = bias; });
  nlohmann::json read = config.document();  // transformers' class ignores the keys of dense layers
  read.erase("first_k_dense_replace");
  read.erase("mlp_layer_types");
  detail::set_shared_experts(JsonObject(read, config.where()), spec,
                             {.count = 128, .active = 8, .shared = 1, .intermediate = 1280});
  return spec;
}

}  // namespace winnow::model
