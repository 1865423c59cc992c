// EXAONE 4 (LG AI Research 2025): norms only after attention and feed-forward, and norms of query
// and key heads; in models with sliding layers, full layers have no RoPE.
#include "model/families/exaone_layers.h"
#include "model/families/families.h"
#include "model/families/olmo_layers.h"

namespace winnow::model {

ModelSpec describe_exaone4(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 2048, .kv_heads = 32, .norm_eps = 1e-5});
  detail::set_norms_behind_parts(spec);
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
  });
  detail::set_exaone_layers(config, spec);
  return spec;
}

}  // namespace winnow::model
