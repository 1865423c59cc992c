// Families that only the general path supports: keys of config.json and weights for their cases.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"
#include "model/weights.h"

namespace winnow::engine::testing {

/// The keys of a case, by its name; empty for others.
inline nlohmann::json general_keys(std::string_view name) {
  using nlohmann::json;
  const json shared = {{"n_routed_experts", 12},      {"num_experts_per_tok", 3},
                       {"moe_intermediate_size", 80}, {"n_shared_experts", 2},
                       {"first_k_dense_replace", 1},  {"routed_scaling_factor", 1.5},
                       {"norm_topk_prob", true}};
  const json llama4 = {{"attention_chunk_size", 48},  {"floor_scale", 64},
                       {"no_rope_layer_interval", 2}, {"moe_layers", {1}},
                       {"num_local_experts", 6},      {"num_experts_per_tok", 2},
                       {"intermediate_size_mlp", 224}};
  const json sliding = {{"sliding_window", 48}, {"sliding_window_pattern", 2}};
  const json beside_full = {
      {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
      {"sliding_window", 48}};
  const json all_attention = {{"layer_types", std::vector<std::string>(3, "attention")}};
  const json granite_experts = {
      {"num_local_experts", 6}, {"num_experts_per_tok", 2}, {"shared_intermediate_size", 96}};
  const json plain_experts = {
      {"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 96}};
  const json gemma4 = {
      {"layer_types",
       {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
      {"sliding_window", 48},
      {"global_head_dim", 128},
      {"num_kv_shared_layers", 2},
      {"use_double_wide_mlp", true},
      {"hidden_size_per_layer_input", 32},
      {"vocab_size_per_layer_input", 1003},
      {"final_logit_softcapping", 4.0}};
  const json gemma4_moe = {
      {"layer_types", {"sliding_attention", "full_attention", "full_attention"}},
      {"sliding_window", 48},
      {"global_head_dim", 128},
      {"hidden_size_per_layer_input", 0},
      {"attention_k_eq_v", true},
      {"num_global_key_value_heads", 1},
      {"enable_moe_block", true},
      {"num_experts", 6},
      {"top_k_experts", 2},
      {"moe_intermediate_size", 96}};
  const auto with = [](json keys, const json& more) {
    keys.update(more);
    return keys;
  };
  const json keys = {
      {"cohere", {{"use_qk_norm", true}, {"logit_scale", 0.5}}},
      {"cohere_dms", {{"use_qk_norm", true}, {"logit_scale", 0.5}}},
      {"cohere2", with(sliding, {{"logit_scale", 0.5}})},
      {"cohere2_moe", with(sliding, {{"logit_scale", 0.5},
                                     {"num_experts", 6},
                                     {"num_experts_per_tok", 2},
                                     {"num_shared_experts", 1},
                                     {"first_k_dense_replace", 1},
                                     {"shared_expert_combination_strategy", "sum"}})},
      {"gptj", {{"rotary_dim", 32}}},
      {"granite_swa", with(beside_full, {{"attention_multiplier", 0.1}})},
      {"granitemoe_swa", with(beside_full, with(granite_experts, {{"attention_multiplier", 0.1}}))},
      {"granitemoehybrid", with(all_attention, granite_experts)},
      {"granitemoehybrid_dense",
       with(all_attention, {{"num_local_experts", 0}, {"shared_intermediate_size", 96}})},
      {"hy_v3", with(plain_experts, {{"num_shared_experts", 1}, {"first_k_dense_replace", 1}})},
      {"mellum", with(with(plain_experts, beside_full), {{"num_experts_per_tok", 6}})},
      {"glm4_moe", with(shared, {{"use_qk_norm", true}, {"norm_topk_prob", false}})},
      {"dots1", with(shared, {{"n_group", 4}, {"topk_group", 2}})},
      {"phimoe",
       {{"num_local_experts", 6},
        {"num_experts_per_tok", 2},
        {"router_jitter_noise", 0.01},
        {"lm_head_bias", true}}},
      {"solar_open", shared},
      {"exaone_moe", with(sliding, {{"num_shared_experts", 1}})},
      {"minimax_m2", {{"num_local_experts", 6}, {"num_experts_per_tok", 2}, {"rotary_dim", 32}}},
      {"ernie4_5", {{"use_bias", true}}},
      {"ernie4_5_moe", {{"moe_num_shared_experts", 1}}},
      {"gpt_neox_serial", {{"use_parallel_residual", false}}},
      {"gemma4", gemma4},
      {"gemma4_fp8", gemma4},
      {"gemma4_sharing_dmc", gemma4},
      {"gemma4_tova", gemma4},
      {"gemma4_h2o", gemma4},
      {"gemma4_quest", gemma4},
      {"gemma4_unified", with(gemma4, {{"hidden_size_per_layer_input", 0},
                                       {"num_kv_shared_layers", 0},
                                       {"use_double_wide_mlp", false},
                                       {"attention_k_eq_v", true},
                                       {"num_global_key_value_heads", 1}})},
      {"gemma4_q4", with(gemma4, {{"global_head_dim", 72}})},
      {"gemma4_streaming_int8", gemma4},
      {"gemma4_equal_heads", with(gemma4, {{"global_head_dim", 64}})},
      {"gemma4_dmc", with(gemma4, {{"layer_types", std::vector<std::string>(3, "full_attention")},
                                   {"num_kv_shared_layers", 0}})},
      {"gemma4_wide", with(gemma4, {{"global_head_dim", 512}})},
      {"gemma4_moe", gemma4_moe},
      {"gemma4_moe_int8_weights", gemma4_moe},
      {"mistral_sliding", {{"sliding_window", 48}}},
      {"mistral_sliding_quest", {{"sliding_window", 48}}},
      {"ministral_dmc", beside_full},
      {"ministral_h2o", beside_full},
      {"ministral", beside_full},
      {"cwm", beside_full},
      {"flex_olmo", {{"num_experts", 6}, {"num_experts_per_tok", 2}}},
      {"granitemoeshared", granite_experts},
      {"llama4", llama4},
      {"llama4_dense", llama4},
      {"llama4_tova", llama4},
      {"llama4_dmc", llama4},
      {"falcon_grouped", {{"new_decoder_architecture", true}, {"num_kv_heads", 2}, {"bias", true}}},
      {"stablelm", {{"use_qkv_bias", true}}},
      {"stablelm_parallel", {{"use_parallel_residual", true}}}};
  return keys.contains(name) ? keys.at(name) : json::object();
}

/// Fills `values` with different numbers around `center`.
inline void vary(std::vector<float>& values, float center, float spread) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = center + spread * (static_cast<float>(i * 7 % 11) - 5.0F) / 5.0F;
  }
}

/// Weights of norms after RoPE vary, and with `of_each_head` those that each head has for itself,
/// because with all 1 their order would not matter. Biases of norms vary too, little enough not to
/// outweigh everything else. `config`: of the weights, which may be a rank's part.
inline void vary_norms(const model::ModelSpec& config, model::Weights& weights, bool of_each_head) {
  vary(weights.norm_bias, 0.0F, 0.2F);
  vary(weights.layer_projection_norm, 1.0F, 0.5F);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    model::LayerWeights& layer = weights.layers[i];
    vary(layer.attention_norm_bias, 0.0F, 0.2F);
    vary(layer.mlp_norm_bias, 0.1F, 0.2F);
    const model::AttentionSpec* attention = config.layers[i].attention();
    vary(layer.output_scale, 0.8F, 0.0F);
    vary(layer.router_norm, 1.0F, 0.5F);
    vary(layer.expert_scale, 1.0F, 0.5F);
    vary(layer.experts_norm, 1.0F, 0.5F);
    vary(layer.experts_post_norm, 0.7F, 0.3F);
    vary(layer.shared_post_norm, 0.7F, 0.3F);
    vary(layer.embedding_norm, 0.7F, 0.3F);
    const bool is_own =
        attention != nullptr &&
        attention->query_key_norm == model::AttentionSpec::QueryKeyNorm::own_per_head;
    if (attention != nullptr && attention->norm_weights &&
        (is_own ? of_each_head : attention->norms_after_rope)) {
      vary(layer.query_norm, 1.0F, 0.8F);
      vary(layer.key_norm, 1.0F, 0.8F);
    }
    if (attention != nullptr &&
        attention->value_norm) {  // scores are plain products, which nothing scales down
      const float size = 1.0F / std::sqrt(static_cast<float>(attention->head_dim));
      vary(layer.query_norm, size, 0.5F * size);
      vary(layer.key_norm, 1.0F, 0.5F);
    }
  }
}

/// Random weights with norms that vary.
inline model::Weights weights_of(const model::ModelSpec& config,
                                 std::optional<ops::WeightFormat> format = {}) {
  model::Weights weights = model::random_weights(config, DType::bf16, 3, format);
  vary_norms(config, weights, /*of_each_head=*/true);
  return weights;
}

}  // namespace winnow::engine::testing
