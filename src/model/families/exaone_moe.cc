// K-EXAONE (LG AI Research 2026): norms of query and key heads; three of four layers have a sliding
// window, the others have no RoPE; experts as in DeepSeek V3.
#include "model/families/exaone_layers.h"
#include "model/families/families.h"
#include "model/families/shared_experts.h"

namespace winnow::model {

ModelSpec describe_exaone_moe(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 2048, .kv_heads = 32, .norm_eps = 1e-5, .intermediate = 16384});
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
  });
  detail::set_shared_experts(config, spec,
                             {.count_key = "num_experts",
                              .shared_key = "num_shared_experts",
                              .count = 64,
                              .active = 8,
                              .shared = 1,
                              .intermediate = 1024,
                              .dense_layers = 1,
                              .scale = 2.5});
  spec.names.choice_bias = "e_score_correction_bias";
  detail::set_exaone_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
