// VaultGemma (Google 2025): Gemma 2's layers without the norms after attention and feed-forward.
#include "model/families/families.h"
#include "model/families/gemma_layers.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_vaultgemma(const JsonObject& config) {
  ModelSpec spec =
      detail::read_decoder(config, {.max_positions = 8192, .head_dim = 256, .kv_heads = 4});
  detail::set_gemma_layers(config, spec, {.scores = 50.0F, .logits = 30.0F});
  spec.names.attention_post_norm = "";
  spec.names.mlp_post_norm = "";
  for (LayerSpec& layer : spec.layers) {
    layer.norm_after = false;
  }
  detail::set_sliding_layers(config, spec, [](int layer) { return layer % 2 == 0; });
  return spec;
}

}  // namespace winnow::model
