// Gemma (Gemma Team 2024): Llama's layers with a GELU gate and norm weights stored minus 1.
#include "model/families/families.h"
#include "model/families/gemma_layers.h"

namespace winnow::model {

ModelSpec describe_gemma(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config,
      {.max_positions = 8192, .head_dim = 256, .kv_heads = 16, .activation = "gelu_pytorch_tanh"});
  detail::set_gemma_ends(config, spec);
  detail::set_biases(config, spec, {.mlp = false});
  for (LayerSpec& layer : spec.layers) {
    // Published files say "gelu" but mean the tanh approximation.
    if (layer.feed_forward.activation == ops::Activation::gelu) {
      layer.feed_forward.activation = ops::Activation::gelu_tanh;
    }
  }
  return spec;
}

}  // namespace winnow::model
