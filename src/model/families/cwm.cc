// Code World Model (Meta 2025): Llama's layers, three of four with a sliding window.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {
namespace {

constexpr const char* kRope =
    R"({"rope_type": "llama3", "rope_theta": 1e6, "factor": 16.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";

}  // namespace

ModelSpec describe_cwm(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 131072,
                                                 .head_dim = 128,
                                                 .kv_heads = 8,
                                                 .norm_eps = 1e-5,
                                                 .rope = {.theta = 1e6, .parameters = kRope}});
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.bias = config.boolean("mlp_bias", false);
  }
  detail::set_sliding_layers(config, spec, [](int layer) { return layer % 4 != 0; });
  return spec;
}

}  // namespace winnow::model
