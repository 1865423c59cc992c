// Qwen 3 (Yang et al. 2025): an RMSNorm of every query and key head before RoPE, and a head size
// that does not follow from the hidden size.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_qwen3(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 32768, .head_dim = 128, .kv_heads = 32});
  detail::set_biases(config, spec, {.mlp = false});
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
  });
  detail::set_upper_sliding_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
