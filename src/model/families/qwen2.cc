// Qwen 2 and 2.5 (Yang et al. 2024): biases of q, k and v.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_qwen2(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 32768, .kv_heads = 32});
  detail::for_each_attention(spec, [](AttentionSpec& attention) { attention.qkv_bias = true; });
  detail::set_upper_sliding_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
