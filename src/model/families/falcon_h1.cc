// Falcon H1 (Technology Innovation Institute 2025): attention and Mamba 2 in parallel in each
// layer, and multipliers in most places.
#include <array>

#include "base/error.h"
#include "model/families/families.h"
#include "model/families/mamba_layers.h"

namespace winnow::model {
namespace {

float read_multiplier(const JsonObject& config, const char* key) {
  return static_cast<float>(config.number(key, -1e6, 1e6, 1.0));
}

// kCount numbers under `key`; all are 1 if it is absent.
template <std::size_t kCount>
std::array<float, kCount> read_multipliers(const JsonObject& config, const char* key) {
  std::array<float, kCount> result;
  result.fill(1.0F);
  const nlohmann::json* list = config.find(key);
  if (list == nullptr) {
    return result;
  }
  if (!list->is_array() || list->size() != kCount) {
    config.reject(key, fmt::format("{} numbers", kCount));
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    require((*list)[i].is_number(), "{}: {}: expected numbers, got {}", config.where(), key,
            described((*list)[i]));
    result[i] = (*list)[i].get<float>();
  }
  return result;
}

RecurrentSpec read_mixer(const JsonObject& config, int hidden) {
  constexpr const char* kWidth = "mamba_d_ssm";  // null: mamba_expand gives the width
  const auto width = config.has(kWidth) || !config.states(kWidth)
                         ? std::optional(config.integer(kWidth, 1, detail::kMaxIntermediate, 1024))
                         : std::nullopt;
  RecurrentSpec mixer = detail::read_mamba(config, hidden, width);
  if (!config.boolean("mamba_rms_norm", false)) {
    mixer.norm = RecurrentSpec::Norm::none;
  } else if (config.boolean("mamba_norm_before_gate", true)) {
    mixer.norm = RecurrentSpec::Norm::before_gates;
  }
  const auto [gates, values, keys, queries, rates] = read_multipliers<5>(config, "ssm_multipliers");
  const float input = read_multiplier(config, "ssm_in_multiplier");
  mixer.multipliers = {.gates = input * gates,
                       .values = input * values,
                       .keys = input * keys,
                       .queries = input * queries,
                       .rates = input * rates,
                       .output = read_multiplier(config, "ssm_out_multiplier")};
  return mixer;
}

}  // namespace

ModelSpec describe_falcon_h1(const JsonObject& config) {
  ModelSpec spec = detail::read_decoder(
      config, {.max_positions = 8192, .kv_heads = 8, .norm_eps = 1e-5, .intermediate = 14336});
  for (const char* key : {"attention_bias", "projectors_bias"}) {
    require(!config.boolean(key, false), "{}: {}: true is not supported for this family",
            config.where(), key);
  }
  detail::set_biases(config, spec);
  spec.embedding_multiplier = read_multiplier(config, "embedding_multiplier");
  spec.logit_multiplier = read_multiplier(config, "lm_head_multiplier");
  // Multipliers of queries and keys scale the scores, those of values the attention output.
  const float input = read_multiplier(config, "attention_in_multiplier");
  const float keys = read_multiplier(config, "key_multiplier");
  const float output = read_multiplier(config, "attention_out_multiplier");
  const auto [gate, down] = read_multipliers<2>(config, "mlp_multipliers");
  const RecurrentSpec mixer = read_mixer(config, spec.hidden);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    attention.scale *= input * input * keys;
    attention.output_multiplier = input * output;
    layer.beside = mixer;
    layer.feed_forward.gate_multiplier = gate;
    layer.feed_forward.multiplier = down;
  }
  spec.names.mlp_norm = "pre_ff_layernorm";
  spec.names.renamed = {{"mlp.", "feed_forward."},
                        {"model.norm.", "model.final_layernorm."},
                        {"linear_attn.", "mamba."}};
  return spec;
}

}  // namespace winnow::model
