// MiniMax M2 (MiniMax 2025): one norm over all query heads and one over all key heads, partial
// RoPE, experts with sigmoid scores, plus a bias in the choice.
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {

ModelSpec describe_minimax_m2(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 196608,
               .head_dim = 128,
               .kv_heads = 8,
               .intermediate = 1536,
               .rope = {.theta = 5000000.0, .partial = true, .channels_key = "rotary_dim"}});
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::whole;
  });
  const char* key = config.has("num_local_experts") ? "num_local_experts" : "num_experts";
  const int count = config.integer(key, 1, detail::kMaxExperts, 256);
  const ExpertsSpec experts{
      .count = count,
      .active = config.integer("num_experts_per_tok", 1, count, std::min(8, count)),
      .score = ops::RouterScore::sigmoid,
      .normalized = true,
      .choice_bias = true};
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.experts = experts;
  }
  spec.names.feed_forward = "block_sparse_moe";
  spec.names.expert_gate = "w1";
  spec.names.expert_up = "w3";
  spec.names.expert_down = "w2";
  spec.names.choice_bias = "e_score_correction_bias";
  return spec;
}

}  // namespace winnow::model
