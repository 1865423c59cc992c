// dots.llm1 (rednote 2025): Qwen 3's attention, experts as in DeepSeek V3.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/shared_experts.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_dots1(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 2048, .kv_heads = 32});
  detail::set_biases(config, spec, {.mlp = false});
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
  });
  detail::set_shared_experts(
      config, spec,
      {.count = 128, .active = 6, .shared = 2, .intermediate = 1408, .normalized = false});
  const int limit = config.integer("max_window_layers", 0, detail::kMaxPositions, 62);
  detail::set_sliding_layers(config, spec, [limit](int layer) { return layer >= limit; });
  return spec;
}

}  // namespace winnow::model
