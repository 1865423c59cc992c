// Gemma 2 (Gemma Team 2024): pre- and post-norms, soft caps, every second layer sliding.
#include "model/families/families.h"
#include "model/families/gemma_layers.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_gemma2(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 8192, .head_dim = 256, .kv_heads = 4});
  detail::set_gemma_layers(config, spec, {.scores = 50.0F, .logits = 30.0F});
  detail::set_sliding_layers(config, spec, [](int layer) { return layer % 2 == 0; });
  return spec;
}

}  // namespace winnow::model
