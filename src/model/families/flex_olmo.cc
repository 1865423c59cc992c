// FlexOlmo (Ai2 2025): OLMo 2's layers with experts.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/olmo_layers.h"

namespace winnow::model {

ModelSpec describe_flex_olmo(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 4096, .rope = {.theta = 500000.0}});
  detail::set_olmo_layers(config, spec);
  const int count = config.integer("num_experts", 1, detail::kMaxExperts, 7);
  const ExpertsSpec experts{
      .count = count,
      .active = config.integer("num_experts_per_tok", 1, count, std::min(5, count)),
      .normalized = config.boolean("norm_topk_prob", false)};
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.experts = experts;
  }
  return spec;
}

}  // namespace winnow::model
