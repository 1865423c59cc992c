// MiniCPM3 (OpenBMB 2024): multi-head latent attention in a dense model, with multipliers for
// embeddings, the residual stream and logits.
#include <cmath>

#include "base/error.h"
#include "model/families/families.h"
#include "model/families/latent_layers.h"

namespace winnow::model {

ModelSpec describe_minicpm3(const JsonObject& config) {
  ModelSpec spec = detail::read_latent_decoder(
      config, {.max_positions = 32768, .norm_eps = 1e-5, .intermediate = 6400},
      {.rank = 256, .query_rank = 768, .key_dim = 64, .rotated_dim = 32, .value_dim = 0});
  require(!config.boolean("mlp_bias", false), "{}: mlp_bias: true is not supported for this family",
          config.where());
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  spec.embedding_multiplier = static_cast<float>(config.number("scale_emb", 1e-6, 1e6, 12.0));
  const double layers = std::sqrt(static_cast<double>(spec.layer_count()));
  const bool plain_depth = config.states("scale_depth") && !config.has("scale_depth");
  const double depth = plain_depth ? layers : config.number("scale_depth", 1e-6, 1e6, 1.4);
  for (LayerSpec& layer : spec.layers) {
    layer.residual_multiplier = static_cast<float>(depth / layers);
  }
  const bool plain_logits = config.states("dim_model_base") && !config.has("dim_model_base");
  const double base = plain_logits ? spec.hidden : config.number("dim_model_base", 1.0, 1e6, 256.0);
  spec.logit_multiplier = static_cast<float>(base / spec.hidden);
  return spec;
}

}  // namespace winnow::model
