// OLMoE (Muennighoff et al. 2024): Llama's layers with one norm over all query heads and one over
// all key heads, and 64 experts; a token takes 8.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_olmoe(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 4096, .norm_eps = 1e-5});
  require(!config.has("clip_qkv"), "{}: clip_qkv is not supported, expected null", config.where());
  detail::set_biases(config, spec, {.mlp = false});
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::whole;
  });
  const int count = config.integer("num_experts", 1, detail::kMaxExperts, 64);
  const ExpertsSpec experts{
      .count = count,
      .active = config.integer("num_experts_per_tok", 1, count, std::min(8, count)),
      .normalized = config.boolean("norm_topk_prob", false)};
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.experts = experts;
  }
  return spec;
}

}  // namespace winnow::model
