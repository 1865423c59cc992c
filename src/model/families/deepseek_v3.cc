// DeepSeek V3 and R1 (DeepSeek-AI 2024), Kimi K2 (Moonshot AI 2025): multi-head latent attention,
// experts chosen by their scores plus a bias (shared_experts.h).
#include "model/families/families.h"
#include "model/families/latent_layers.h"
#include "model/families/shared_experts.h"

namespace winnow::model {

ModelSpec describe_deepseek_v3(const JsonObject& config) {
  ModelSpec spec =
      detail::read_latent_decoder(config, {.max_positions = 4096, .intermediate = 18432},
                                  {.interleaved = true, .has_interleave_key = true});
  detail::set_shared_experts(config, spec,
                             {.count = 256,
                              .active = 8,
                              .shared = 1,
                              .intermediate = 2048,
                              .dense_layers = 3,
                              .scale = 2.5,
                              .groups = 8,
                              .active_groups = 4});
  return spec;
}

}  // namespace winnow::model
