#include "model/families/gemma_layers.h"

#include <cmath>

namespace winnow::model::detail {
namespace {

/// The soft cap under `key`; null means none.
float read_cap(const JsonObject& config, const char* key, float absent) {
  return config.states(key) ? static_cast<float>(config.number(key, 0.0, 1e6, 0.0)) : absent;
}

}  // namespace

void set_gemma_ends(const JsonObject& config, ModelSpec& spec) {
  spec.tied_embeddings = config.boolean("tie_word_embeddings", true);
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden));
  spec.final_norm.kind = NormSpec::Kind::rms_plus_one;
  for (LayerSpec& layer : spec.layers) {
    layer.norm.kind = NormSpec::Kind::rms_plus_one;
  }
}

void set_gemma_layers(const JsonObject& config, ModelSpec& spec, const SoftCaps& caps) {
  set_gemma_ends(config, spec);
  spec.final_soft_cap = read_cap(config, "final_logit_softcapping", caps.logits);
  spec.names = {.attention_norm = "input_layernorm",
                .attention_post_norm = "post_attention_layernorm",
                .mlp_norm = "pre_feedforward_layernorm",
                .mlp_post_norm = "post_feedforward_layernorm"};
  for (LayerSpec& layer : spec.layers) {
    layer.norm_after = true;
    layer.feed_forward.activation =
        read_activation(config, "hidden_activation", "gelu_pytorch_tanh");
  }
  set_biases(config, spec, {.mlp = false});
  const double width = config.number("query_pre_attn_scalar", 1.0, 1e6, 256.0);
  const float cap = read_cap(config, "attn_logit_softcapping", caps.scores);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.scale = static_cast<float>(1.0 / std::sqrt(width));
    attention.soft_cap = cap;
  });
}

}  // namespace winnow::model::detail
