// Hunyuan (Tencent 2025), dense or with experts and a shared expert: norms of query and key heads
// after RoPE.
#include "base/error.h"
#include "model/config_fields.h"
#include "model/families/families.h"

namespace winnow::model {
namespace {

ModelSpec read_hunyuan(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 2048, .norm_eps = 1e-5, .rope = {.fixed_alpha = true}});
  detail::set_biases(config, spec, {.mlp = false});
  detail::for_each_attention(spec, [](AttentionSpec& attention) {
    attention.query_key_norm = AttentionSpec::QueryKeyNorm::per_head;
    attention.norms_after_rope = true;
  });
  spec.names.renamed = {{"self_attn.q_norm.", "self_attn.query_layernorm."},
                        {"self_attn.k_norm.", "self_attn.key_layernorm."}};
  return spec;
}

/// A number, or a list that has the same number for each layer.
int read_for_all_layers(const JsonObject& config, const char* key, int most) {
  const nlohmann::json* value = config.find(key);
  if (value == nullptr || !value->is_array()) {
    return config.integer(key, 1, most, 1);
  }
  require(!value->empty() && value->front().is_number_integer() && value->front() >= 1 &&
              value->front() <= most &&
              std::all_of(value->begin(), value->end(),
                          [&](const auto& other) { return other == value->front(); }),
          "{}: {}: expected the same number for all layers, from 1 to {}", config.where(), key,
          most);
  return value->front().get<int>();
}

}  // namespace

ModelSpec describe_hunyuan_v1_dense(const JsonObject& config) {
  return read_hunyuan(config);
}

ModelSpec describe_hunyuan_v1_moe(const JsonObject& config) {
  ModelSpec spec = read_hunyuan(config);
  const int count = read_for_all_layers(
      config, config.has("num_experts") ? "num_experts" : "num_local_experts", detail::kMaxExperts);
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.experts =
        ExpertsSpec{.count = count,
                    .active = read_for_all_layers(
                        config, config.has("moe_topk") ? "moe_topk" : "num_experts_per_tok", count),
                    .normalized = true,
                    .shared_intermediate = layer.feed_forward.intermediate};
  }
  spec.names.shared_expert = "shared_mlp";
  spec.names.router = "gate.wg";
  return spec;
}

}  // namespace winnow::model
