// Descriptions of small models for tests, parsed from a config.json like any other.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config.h"

namespace winnow::testing {

struct Sizes {
  int hidden = 32;
  int layers = 2;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int intermediate = 48;
  int vocab = 64;
  int max_positions = 512;
};

/// A model of a family ("llama", ...) with these sizes; `more`: further keys of its config.json.
inline model::ModelSpec spec_of(const std::string& family, const Sizes& sizes,
                                const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json config = {{"model_type", family},
                           {"hidden_size", sizes.hidden},
                           {"num_hidden_layers", sizes.layers},
                           {"num_attention_heads", sizes.heads},
                           {"num_key_value_heads", sizes.kv_heads},
                           {"head_dim", sizes.head_dim},
                           {"intermediate_size", sizes.intermediate},
                           {"vocab_size", sizes.vocab},
                           {"max_position_embeddings", sizes.max_positions},
                           {"rms_norm_eps", 1e-5}};
  config.update(more);
  return model::parse_spec(config.dump());
}

/// A family, and keys of its config.json that use its differences from Llama.
struct FamilyKeys {
  const char* family;
  nlohmann::json keys;
};

/// Families of dense decoders besides Llama, Qwen, Mistral and Gemma 2; models of `layers` layers,
/// the last one with full attention. `window`: of sliding layers.
inline std::vector<FamilyKeys> dense_cousins(int layers, int window) {
  nlohmann::json types = nlohmann::json::array();
  nlohmann::json rotates = nlohmann::json::array();
  for (int i = 0; i < layers; ++i) {
    types.push_back(i + 1 < layers ? "sliding_attention" : "full_attention");
    rotates.push_back(i % 2);
  }
  const nlohmann::json yarn = {{"rope_type", "yarn"},
                               {"rope_theta", 500.0},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 16},
                               {"llama_4_scaling_beta", 0.3}};
  return {{"arcee", {{"mlp_bias", true}}},
          {"exaone4", {{"layer_types", types}, {"sliding_window", window}}},
          {"gemma", {{"hidden_act", "gelu"}}},
          {"gemma3_text",
           {{"layer_types", types},
            {"sliding_window", window},
            {"query_pre_attn_scalar", 24},
            {"rope_theta", 1000.0},
            {"rope_local_base_freq", 50.0}}},
          {"granite",
           {{"embedding_multiplier", 1.5},
            {"logits_scaling", 0.7},
            {"residual_multiplier", 0.6},
            {"attention_multiplier", 0.3}}},
          {"hyperclovax", {{"residual_multiplier", 0.6}, {"logits_scaling", 0.7}}},
          {"ministral3", {{"rope_parameters", yarn}}},
          {"olmo2", nlohmann::json::object()},
          {"olmo3",
           {{"layer_types", types},
            {"sliding_window", window},
            {"rope_parameters", {{"full_attention", yarn}}}}},
          {"phi3", {{"partial_rotary_factor", 0.5}}},
          {"seed_oss", nlohmann::json::object()},
          {"smollm3", {{"no_rope_layers", rotates}}},
          {"vaultgemma", {{"layer_types", types}, {"sliding_window", window}}}};
}

/// Further families: LayerNorm, parallel attention and feed-forward, interleaved
/// RoPE, norms after RoPE, chunked attention, experts chosen with a bias. Tokens take all experts.
/// The second of two layers has full attention.
inline std::vector<FamilyKeys> further_cousins() {
  using nlohmann::json;
  const json half = {
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 500.0}, {"partial_rotary_factor", 0.5}}}};
  const auto with = [](json keys, const json& more) {
    keys.update(more);
    return keys;
  };
  const json shared = {{"n_routed_experts", 2},       {"num_experts_per_tok", 2},
                       {"moe_intermediate_size", 12}, {"n_shared_experts", 1},
                       {"first_k_dense_replace", 1},  {"routed_scaling_factor", 1.5}};
  const json experts = {{"num_local_experts", 2},
                        {"num_experts_per_tok", 2},
                        {"shared_intermediate_size", 12},
                        {"moe_num_experts", 2},
                        {"moe_k", 2},
                        {"moe_intermediate_size", 12},
                        {"moe_num_shared_experts", 1},
                        {"num_experts", 2},
                        {"moe_topk", 2},
                        {"norm_topk_prob", true}};
  return {
      {"cohere", {{"use_qk_norm", true}, {"logit_scale", 0.5}}},
      {"cohere2", {{"sliding_window", 4}, {"sliding_window_pattern", 2}, {"logit_scale", 0.5}}},
      {"cohere2_moe", with(experts, {{"sliding_window", 4},
                                     {"sliding_window_pattern", 2},
                                     {"first_k_dense_replace", 1},
                                     {"shared_expert_combination_strategy", "sum"},
                                     {"num_shared_experts", 1},
                                     {"logit_scale", 0.5}})},
      {"dots1", with(shared, {{"norm_topk_prob", true}})},
      {"ernie4_5", {{"use_bias", true}}},
      {"ernie4_5_moe", experts},
      {"exaone", json::object()},
      {"exaone_moe",
       with(experts,
            {{"sliding_window", 4}, {"sliding_window_pattern", 2}, {"num_shared_experts", 1}})},
      {"falcon", json::object()},
      {"falcon", {{"new_decoder_architecture", true}, {"num_kv_heads", 2}, {"bias", true}}},
      {"flex_olmo", experts},
      {"gemma4_unified_text", {{"global_head_dim", 16}, {"sliding_window", 4}}},
      {"glm", half},
      {"glm4", half},
      {"glm4_moe", with(half, with(shared, {{"use_qk_norm", true}, {"norm_topk_prob", false}}))},
      {"gpt_neox", json::object()},
      {"gptj", {{"rotary_dim", 2}}},
      {"granitemoe", with(experts, {{"attention_multiplier", 0.3}})},
      {"granitemoeshared", with(experts, {{"attention_multiplier", 0.3}})},
      {"granite_swa", {{"sliding_window", 4}, {"attention_multiplier", 0.3}}},
      {"granitemoe_swa", with(experts, {{"sliding_window", 4}, {"attention_multiplier", 0.3}})},
      {"granitemoehybrid", with(experts, {{"layer_types", {"attention", "attention"}},
                                          {"num_local_experts", 0},
                                          {"attention_multiplier", 0.3}})},
      {"granitemoehybrid",
       with(experts, {{"layer_types", {"attention", "attention"}}, {"attention_multiplier", 0.3}})},
      {"helium", json::object()},
      {"hunyuan_v1_dense", json::object()},
      {"hunyuan_v1_moe", experts},
      {"hy_v3", with(experts, {{"num_shared_experts", 1}})},
      {"jais2", json::object()},
      {"llama4_text", with(experts, {{"attention_chunk_size", 3},
                                     {"floor_scale", 4},
                                     {"no_rope_layer_interval", 2},
                                     {"moe_layers", {1}},
                                     {"intermediate_size_mlp", 20}})},
      {"mellum", with(experts, {{"sliding_window", 4},
                                {"layer_types", {"sliding_attention", "full_attention"}}})},
      {"minimax_m2", with(half, experts)},
      {"nemotron", with(half, {{"attention_bias", true}, {"mlp_bias", true}})},
      {"olmoe", experts},
      {"phi", half},
      {"solar_open", shared},
      {"stablelm", with(half, {{"use_qkv_bias", true}})},
      {"stablelm", with(half, {{"use_parallel_residual", true}})},
      {"starcoder2", json::object()}};
}

/// Families with latent attention. Tokens take all experts.
inline std::vector<FamilyKeys> latent_families() {
  const nlohmann::json latent = {{"kv_lora_rank", 16},       {"q_lora_rank", 12},
                                 {"qk_rope_head_dim", 8},    {"qk_nope_head_dim", 6},
                                 {"v_head_dim", 10},         {"n_routed_experts", 2},
                                 {"num_experts_per_tok", 2}, {"moe_intermediate_size", 12},
                                 {"n_shared_experts", 1},    {"n_group", 1},
                                 {"topk_group", 1},          {"first_k_dense_replace", 1}};
  const auto with = [&](const nlohmann::json& more) {
    nlohmann::json keys = latent;
    keys.update(more);
    return keys;
  };
  return {{"deepseek_v2", with({{"q_lora_rank", nullptr}})},
          {"deepseek_v3", with({{"attention_bias", true}, {"rope_interleave", false}})},
          {"glm4_moe_lite", latent},
          {"minicpm3", with({{"scale_emb", 1.5}, {"dim_model_base", 20}})}};
}

/// Keys of Qwen's hybrids: small recurrent layers, each followed by attention.
inline nlohmann::json hybrid_keys() {
  return {{"full_attention_interval", 2}, {"partial_rotary_factor", 0.5},
          {"linear_num_key_heads", 2},    {"linear_num_value_heads", 4},
          {"linear_key_head_dim", 4},     {"linear_value_head_dim", 4}};
}

/// Families with other kinds of recurrent layers, in models of `layers` layers: every second
/// one is attention. Tokens take all experts.
inline std::vector<FamilyKeys> recurrent_cousins(int layers = 2) {
  nlohmann::json conv = nlohmann::json::array();
  nlohmann::json mamba_types = nlohmann::json::array();
  nlohmann::json attends = nlohmann::json::array();
  for (int i = 0; i < layers; ++i) {
    conv.push_back(i % 2 == 0 ? "conv" : "full_attention");
    mamba_types.push_back(i % 2 == 0 ? "mamba" : "attention");
    attends.push_back(2 * i + 1);
  }
  nlohmann::json mamba = {{"layer_types", mamba_types},  {"attn_layer_indices", attends},
                          {"mamba_n_heads", 4},          {"mamba_n_groups", 2},
                          {"mamba_d_state", 8},          {"mamba_expand", 1},
                          {"num_local_experts", 0},      {"shared_intermediate_size", 24},
                          {"attention_multiplier", 0.3}, {"residual_multiplier", 0.6}};
  nlohmann::json mamba_experts = mamba;
  mamba_experts.update({{"num_local_experts", 2}, {"num_experts_per_tok", 2}});
  return {{"lfm2", {{"layer_types", conv}, {"block_multiple_of", 4}}},
          {"lfm2_moe",
           {{"layer_types", conv},
            {"num_dense_layers", 1},
            {"num_experts", 2},
            {"num_experts_per_tok", 2},
            {"moe_intermediate_size", 12},
            {"routed_scaling_factor", 1.5}}},
          {"granitemoehybrid", mamba},
          {"granitemoehybrid", mamba_experts},
          {"bamba", mamba}};
}

/// Keys of two Gemma 4 models: one with shared entries and per-layer embeddings, one with keys as
/// values and experts, all of which a token takes.
inline std::vector<nlohmann::json> gemma4_keys() {
  const nlohmann::json both = {{"global_head_dim", 16},
                               {"sliding_window", 4},
                               {"hidden_size_per_layer_input", 8},
                               {"vocab_size_per_layer_input", 64},
                               {"use_double_wide_mlp", true}};
  nlohmann::json sharing = both;
  sharing.update({{"layer_types",
                   {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
                  {"num_kv_shared_layers", 2},
                  {"final_logit_softcapping", 4.0}});
  nlohmann::json experts = both;
  experts.update({{"layer_types", {"sliding_attention", "full_attention"}},
                  {"hidden_size_per_layer_input", 0},
                  {"attention_k_eq_v", true},
                  {"num_global_key_value_heads", 1},
                  {"enable_moe_block", true},
                  {"num_experts", 2},
                  {"top_k_experts", 2},
                  {"moe_intermediate_size", 12}});
  return {sharing, experts};
}

/// `spec` with RoPE of only the first half of each head's channels, as from config.json.
inline model::ModelSpec half_rotated(model::ModelSpec spec) {
  for (model::LayerSpec& layer : spec.layers) {
    auto& frequencies = std::get<model::AttentionSpec>(layer.mixer).rope->frequencies;
    for (std::size_t i = 0; 2 * i < frequencies.size(); ++i) {
      frequencies[i] = frequencies[2 * i];
    }
    frequencies.resize(frequencies.size() / 2);
  }
  return spec;
}

}  // namespace winnow::testing
