// Bamba (IBM, Princeton, CMU and UIUC 2024): most layers are Mamba 2; the others are Llama's, with
// RoPE of half of each head.
#include "base/error.h"
#include "model/families/families.h"
#include "model/families/mamba_layers.h"

namespace winnow::model {
namespace {

std::vector<bool> bamba_mamba_layers(const JsonObject& config, int layers) {
  constexpr const char* kAttends = "attn_layer_indices";
  std::vector<bool> recurrent(static_cast<std::size_t>(layers), true);
  const nlohmann::json* attends = config.find(kAttends);
  if (attends == nullptr) {
    return recurrent;
  }
  if (!attends->is_array()) {
    config.reject(kAttends, "an array of layers");
  }
  for (const auto& layer : *attends) {
    require(layer.is_number_integer(), "{}: {}: expected layers, got {}", config.where(), kAttends,
            described(layer));
    if (layer >= 0 && layer < layers) {
      recurrent[layer.get<std::size_t>()] = false;
    }
  }
  return recurrent;
}

}  // namespace

ModelSpec describe_bamba(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 262144,
                                                 .kv_heads = 8,
                                                 .norm_eps = 1e-5,
                                                 .intermediate = 14336,
                                                 .rope = {.partial = true, .share = 0.5}});
  detail::set_biases(config, spec);
  spec.names.mlp_norm = "pre_ff_layernorm";
  spec.names.renamed = {{"mlp.", "feed_forward."}, {"model.norm.", "model.final_layernorm."}};
  detail::set_mamba_layers(config, spec, bamba_mamba_layers(config, spec.layer_count()));
  return spec;
}

}  // namespace winnow::model
