// Seed-OSS (ByteDance 2025): Llama's layers, with biases of q, k and v unless config.json has none.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_seed_oss(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 524288, .head_dim = 128, .kv_heads = 8});
  detail::set_biases(config, spec, {.attention = true});
  const bool output_bias = config.boolean("attention_out_bias", false);
  detail::for_each_attention(
      spec, [output_bias](AttentionSpec& attention) { attention.output_bias = output_bias; });
  return spec;
}

}  // namespace winnow::model
