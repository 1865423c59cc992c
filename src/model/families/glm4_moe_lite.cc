// GLM-4.7-Flash (Zhipu AI 2026): DeepSeek V3's layers.
#include "model/families/families.h"
#include "model/families/latent_layers.h"
#include "model/families/shared_experts.h"

namespace winnow::model {

ModelSpec describe_glm4_moe_lite(const JsonObject& config) {
  ModelSpec spec = detail::read_latent_decoder(
      config, {.max_positions = 202752, .norm_eps = 1e-5, .intermediate = 10240},
      {.query_rank = 768,
       .key_dim = 192,
       .value_dim = 256,
       .interleaved = true,
       .has_interleave_key = true});
  detail::set_shared_experts(config, spec,
                             {.count = 64,
                              .active = 4,
                              .shared = 1,
                              .intermediate = 1536,
                              .dense_layers = 1,
                              .scale = 1.8});
  return spec;
}

}  // namespace winnow::model
