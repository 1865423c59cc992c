#include "model/families/latent_layers.h"

#include <cmath>

#include "base/error.h"

namespace winnow::model::detail {
namespace {

// The factor of the scores that comes with a RoPE for texts longer than the trained context.
double score_factor(const JsonObject& config) {
  const char* key = config.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!config.has(key)) {
    return 1.0;
  }
  const JsonObject inside = config.object(key);
  const double mscale = inside.number("mscale_all_dim", -1e6, 1e6, 0.0);
  if (mscale == 0.0 || inside.text("rope_type", inside.text("type", "default")) == "default") {
    return 1.0;
  }
  const double factor = inside.number("factor", 1e-3, 1e6);
  const double grown = factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
  return grown * grown;
}

LatentSpec read_latent(const JsonObject& config, const AttentionSpec& attention, int hidden,
                       const LatentDefaults& defaults) {
  LatentSpec latent;
  latent.rank = config.integer("kv_lora_rank", 1, kMaxHeadDim, defaults.rank);
  const bool has_query_latent = !config.states("q_lora_rank") || config.has("q_lora_rank");
  latent.query_rank =
      has_query_latent ? config.integer("q_lora_rank", 1, kMaxHidden, defaults.query_rank) : 0;
  latent.key_dim = config.integer("qk_nope_head_dim", 1, kMaxHeadDim, defaults.key_dim);
  const int value_dim = defaults.value_dim > 0 ? defaults.value_dim : hidden / attention.heads;
  latent.value_dim = config.integer("v_head_dim", 1, kMaxHeadDim, value_dim);
  return latent;
}

}  // namespace

ModelSpec read_latent_decoder(const JsonObject& config, const FamilyDefaults& defaults,
                              const LatentDefaults& latents) {
  nlohmann::json document = config.document();
  document["head_dim"] =
      config.integer("qk_rope_head_dim", 2, kMaxHeadDim, latents.rotated_dim);  // the rotated part
  document["num_key_value_heads"] = nullptr;
  ModelSpec spec = read_decoder(JsonObject(document, config.where()), defaults);
  const bool bias = config.boolean("attention_bias", false);
  const bool interleaved = latents.has_interleave_key
                               ? config.boolean("rope_interleave", latents.interleaved)
                               : latents.interleaved;
  const double factor = score_factor(config);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    const LatentSpec latent = read_latent(config, attention, spec.hidden, latents);
    attention.scale =
        static_cast<float>(factor / std::sqrt(1.0 * latent.key_dim + attention.head_dim));
    attention.rope->interleaved = interleaved;
    attention.kv_heads = 1;
    attention.head_dim += latent.rank;
    attention.value_dim = attention.head_dim;
    attention.qkv_bias = bias;
    attention.output_bias = bias;
    attention.latent = latent;
  });
  return spec;
}

}  // namespace winnow::model::detail
