// StarCoder 2 (BigCode 2024): LayerNorm, biases everywhere, a GELU without a gate; some sizes have
// a sliding window in all layers.
#include "model/config_fields.h"
#include "model/families/families.h"
#include "model/families/sliding_layers.h"

namespace winnow::model {

ModelSpec describe_starcoder2(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(config, {.max_positions = 4096,
                                                 .kv_heads = 2,
                                                 .activation = "gelu_pytorch_tanh",
                                                 .norm = NormSpec::Kind::layer,
                                                 .norm_bias = true,
                                                 .norm_eps_key = "norm_epsilon",
                                                 .norm_eps = 1e-5});
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  const bool bias = config.boolean("use_bias", true);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.gated = false;
    layer.feed_forward.bias = bias;
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.qkv_bias = bias;
    attention.output_bias = bias;
  }
  if (config.has("sliding_window")) {
    detail::set_sliding_layers(config, spec, [](int) { return true; });
  }
  spec.names.renamed = {{"mlp.up_proj.", "mlp.c_fc."}, {"mlp.down_proj.", "mlp.c_proj."}};
  return spec;
}

}  // namespace winnow::model
