// Phi-3 and Phi-4-mini (Microsoft 2024): Mistral's layers, which store q, k and v as one tensor and
// gate and up as another; partial RoPE, LongRoPE.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_phi3(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 4096,
               .norm_eps = 1e-5,
               .rope = {.partial = true, .phi_names = true, .original_context = 4096}});
  spec.names.joins_qkv = true;
  spec.names.joins_gate_up = true;
  if (config.has("sliding_window")) {
    detail::set_sliding_layers(config, spec, [](int) { return true; });
  }
  return spec;
}

}  // namespace winnow::model
