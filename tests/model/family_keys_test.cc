// Keys of single families, and their values that are rejected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint.h"
#include "model/checkpoint_testing.h"
#include "model/config.h"
#include "model/model.h"
#include "model/renamed_tensors.h"

namespace winnow::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string error_of_keys(const json& keys, const std::string& architecture) {
  return error_of([&] { parse_with(keys, architecture); });
}

// Files of "-h" models have one of two keys that name the recurrent layers.
TEST(FamilyKeys, Granite4) {
  constexpr const char* kClass = "GraniteMoeHybridForCausalLM";
  const json mamba = {{"mamba_n_heads", 4}, {"mamba_d_state", 8}, {"mamba_n_groups", 2}};
  for (const char* key : {"layer_types", "layers_block_type"}) {
    json keys = mamba;
    keys[key] = {"mamba", "attention"};
    const ModelSpec spec = parse_with(keys, kClass);
    ASSERT_NE(spec.layer(0).recurrent(), nullptr) << key;
    const RecurrentSpec& mixer = *spec.recurrent();
    EXPECT_EQ(mixer.channels(), 2 * spec.hidden + 2 * 2 * 8);
    EXPECT_EQ(mixer.state_size(), 2 * spec.hidden * 8 + 3 * mixer.channels());
    EXPECT_TRUE(mixer.conv_bias);
    EXPECT_EQ(mixer.rates, ops::RateLimits{});
    EXPECT_EQ(spec.layer(1).recurrent(), nullptr);
    EXPECT_FALSE(spec.attention().rope);
    EXPECT_THAT(error_of_keys({{key, {"attention"}}}, kClass),
                HasSubstr("a type for each of 2 layers"));
    EXPECT_THAT(error_of_keys({{key, {"attention", "conv"}}}, kClass), HasSubstr("\"conv\""));
    EXPECT_FALSE(parse_with({{key, {"attention", "attention"}}}, kClass).attention().rope);
  }
  EXPECT_THAT(error_of_keys({}, kClass), HasSubstr("no layer attends"));
  const ModelSpec spec = parse_with({{"layer_types", {"attention", "full_attention"}},
                                     {"position_embedding_type", "rope"},
                                     {"num_local_experts", 0},
                                     {"shared_intermediate_size", 20}},
                                    kClass);
  EXPECT_TRUE(spec.attention().rope);
  EXPECT_EQ(spec.layer(0).feed_forward.intermediate, 20);
  EXPECT_FALSE(spec.layer(0).feed_forward.experts);
}

TEST(FamilyKeys, Mamba) {
  constexpr const char* kClass = "BambaForCausalLM";
  const json keys = {{"mamba_n_heads", 4}, {"attn_layer_indices", {1, 9}}};
  const auto with = [&](const json& more) {
    json changed = keys;
    changed.update(more);
    return changed;
  };
  const ModelSpec spec = parse_with(keys, kClass);
  EXPECT_NE(spec.layer(0).recurrent(), nullptr);
  EXPECT_EQ(2 * spec.attention().rope->channels(), spec.attention().head_dim);
  EXPECT_EQ(parse_with(with({{"mamba_d_head", "auto"}}), kClass), spec);
  EXPECT_EQ(parse_with(with({{"time_step_limit", {0.0, "Infinity"}}}), kClass), spec);
  const json tagged = {{"__float__", "Infinity"}};
  EXPECT_EQ(parse_with(with({{"time_step_limit", {0.0, tagged}}}), kClass), spec);
  const ops::RateLimits limits{0.5F, 2.0F};
  EXPECT_EQ(parse_with(with({{"time_step_limit", {0.5, 2.0}}}), kClass).recurrent()->rates, limits);

  const auto error = [&](const json& more) { return error_of_keys(with(more), kClass); };
  EXPECT_THAT(error({{"attn_layer_indices", nullptr}}), HasSubstr("no layer attends"));
  EXPECT_THAT(error({{"attn_layer_indices", {"1"}}}), HasSubstr("expected layers"));
  EXPECT_THAT(error({{"mamba_proj_bias", true}}), HasSubstr("mamba_proj_bias: true"));
  EXPECT_THAT(error({{"mamba_d_head", 3}}), HasSubstr("got 4 times 3 and 32"));
  EXPECT_THAT(error({{"mamba_n_groups", 3}}), HasSubstr("a multiple of mamba_n_groups"));
  EXPECT_THAT(error({{"time_step_limit", {2.0, 1.0}}}), HasSubstr("got 2 and 1"));
  EXPECT_THAT(error({{"time_step_limit", {1.0}}}), HasSubstr("two numbers"));
  EXPECT_THAT(error({{"time_step_limit", {0.0, "big"}}}), HasSubstr("two numbers"));
  EXPECT_THAT(error({{"hidden_act", "gelu"}}), HasSubstr("expected \"silu\""));
  EXPECT_THAT(error({{"mamba_d_state", 4096}, {"mamba_expand", 1024}, {"hidden_size", 1 << 12}}),
              HasSubstr("less than 2^30"));
}

TEST(FamilyKeys, FalconH1) {
  constexpr const char* kClass = "FalconH1ForCausalLM";
  const json keys = {{"mamba_n_heads", 4},
                     {"mamba_d_ssm", 24},
                     {"mamba_d_state", 8},
                     {"attention_in_multiplier", 2.0},
                     {"attention_out_multiplier", 0.25},
                     {"key_multiplier", 0.125},
                     {"ssm_in_multiplier", 0.5},
                     {"ssm_out_multiplier", 3.0},
                     {"ssm_multipliers", {2.0, 4.0, 6.0, 8.0, 10.0}},
                     {"mlp_multipliers", {0.75, 1.5}}};
  const ModelSpec spec = parse_with(keys, kClass);
  for (const LayerSpec& layer : spec.layers) {
    ASSERT_NE(layer.attention(), nullptr);
    ASSERT_NE(layer.recurrent(), nullptr);
    EXPECT_TRUE(layer.stores());
    EXPECT_EQ(layer.feed_forward.gate_multiplier, 0.75F);
    EXPECT_EQ(layer.feed_forward.multiplier, 1.5F);
  }
  const AttentionSpec& attention = spec.attention();
  EXPECT_FLOAT_EQ(attention.scale, 0.5F / std::sqrt(static_cast<float>(attention.head_dim)));
  EXPECT_EQ(attention.output_multiplier, 0.5F);
  const RecurrentSpec& mixer = *spec.recurrent();
  EXPECT_EQ(mixer.heads.value_width(), 24);
  EXPECT_EQ(mixer.norm, RecurrentSpec::Norm::none);
  const StateSpaceMultipliers expected{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 3.0F};
  EXPECT_EQ(mixer.multipliers, expected);
  const auto with = [&](const json& more) {
    json changed = keys;
    changed.update(more);
    return changed;
  };
  const auto norm = [&](const json& more) {
    return parse_with(with(more), kClass).recurrent()->norm;
  };
  EXPECT_EQ(norm({{"mamba_rms_norm", true}}), RecurrentSpec::Norm::before_gates);
  EXPECT_EQ(norm({{"mamba_rms_norm", true}, {"mamba_norm_before_gate", false}}),
            RecurrentSpec::Norm::behind_gates);
  json expanded = tiny_config(kClass);
  expanded.update(with({{"mamba_d_ssm", nullptr}}));
  EXPECT_EQ(parse(expanded).recurrent()->heads.value_width(), 2 * spec.hidden);

  const auto error = [&](const json& more) { return error_of_keys(with(more), kClass); };
  EXPECT_THAT(error({{"attention_bias", true}}), HasSubstr("attention_bias: true"));
  EXPECT_THAT(error({{"projectors_bias", true}}), HasSubstr("projectors_bias: true"));
  EXPECT_THAT(error({{"mlp_multipliers", {1.0}}}), HasSubstr("mlp_multipliers"));
  EXPECT_THAT(error({{"ssm_multipliers", {1.0, 1.0, 1.0, 1.0, "1"}}}),
              HasSubstr("expected numbers"));
}

TEST(FamilyKeys, NemotronH) {
  constexpr const char* kClass = "NemotronHForCausalLM";
  const json keys = {{"mamba_num_heads", 4}, {"n_groups", 2}, {"time_step_min", 0.5}};
  const auto with = [&](const json& more) {
    json changed = keys;
    changed.update(more);
    return changed;
  };
  const ModelSpec spec = parse_with(with({{"hybrid_override_pattern", "M-M*-"}}), kClass);
  ASSERT_EQ(spec.layer_count(), 3);
  EXPECT_TRUE(spec.layer(0).feed_forward.exists());
  EXPECT_FALSE(spec.layer(1).feed_forward.exists());
  EXPECT_EQ(spec.layer(0).recurrent()->rates.lowest, 0.5F);
  EXPECT_FALSE(spec.layer(2).attention()->rope);
  EXPECT_FALSE(spec.layer(2).feed_forward.gated);
  const json types = {"linear_attention", "mlp", "mamba", "attention", "mlp"};
  EXPECT_EQ(parse_with(with({{"layers_block_type", types}}), kClass), spec);
  const auto tensors = expected_tensors(spec);
  EXPECT_FALSE(tensors.contains("model.layers.1.post_attention_layernorm.weight"));
  EXPECT_EQ(stored_name(spec.names, "model.layers.2.self_attn.q_proj.weight"),
            "backbone.layers.3.mixer.q_proj.weight");
  EXPECT_EQ(stored_name(spec.names, "model.layers.2.mlp.up_proj.weight"),
            "backbone.layers.4.mixer.up_proj.weight");
  EXPECT_EQ(stored_name(spec.names, "model.norm.weight"), "backbone.norm_f.weight");

  const auto error = [&](const char* pattern, const json& more = json::object()) {
    json changed = with(more);
    changed["hybrid_override_pattern"] = pattern;
    return error_of_keys(changed, kClass);
  };
  EXPECT_THAT(error("ME*-"), HasSubstr("\"E\" is not supported"));
  EXPECT_THAT(error("M--*"), HasSubstr("block 2 is a network behind none"));
  EXPECT_THAT(error("-M*"), HasSubstr("block 0 is a network behind none"));
  EXPECT_THAT(error("M-M"), HasSubstr("no block attends"));
  EXPECT_THAT(error("M*", {{"use_bias", true}}), HasSubstr("use_bias: true"));
  EXPECT_THAT(error("M*", {{"n_groups", 3}}), HasSubstr("a multiple of n_groups"));
  EXPECT_THAT(error("M*", {{"mamba_hidden_act", "gelu"}}), HasSubstr("mamba_hidden_act"));
}

TEST(FamilyKeys, Lfm2) {
  constexpr const char* kClass = "Lfm2ForCausalLM";
  const json types = {{"layer_types", {"conv", "full_attention"}}, {"conv_L_cache", 4}};
  const ModelSpec spec = parse_with(types, kClass);
  ASSERT_NE(spec.recurrent(), nullptr);
  EXPECT_EQ(spec.recurrent()->channels(), spec.hidden);
  EXPECT_EQ(spec.recurrent()->state_size(), 3 * spec.hidden);
  EXPECT_EQ(spec.layer(0).recurrent(), spec.recurrent());
  EXPECT_EQ(spec, parse_with({{"full_attn_idxs", {1, 7}}, {"conv_L_cache", 4}}, kClass));
  EXPECT_EQ(parse_with({}, kClass).recurrent(), nullptr) << "all layers attend";
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_FALSE(parse_with({{"tie_embedding", false}}, kClass).tied_embeddings);

  const auto width = [&](json keys) {
    keys.emplace("block_ff_dim", 100);
    return parse_with(keys, kClass).layer(0).feed_forward.intermediate;
  };
  EXPECT_EQ(width({}), 256) << "two thirds, up to a multiple";
  EXPECT_EQ(width({{"block_multiple_of", 8}}), 72);
  EXPECT_EQ(width({{"block_multiple_of", 8}, {"block_ffn_dim_multiplier", 1.5}}), 104);
  json unrounded = tiny_config(kClass);  // null differs from an absent key
  unrounded.update({{"block_ff_dim", 100}, {"block_ffn_dim_multiplier", nullptr}});
  EXPECT_EQ(parse(unrounded).layer(0).feed_forward.intermediate, 66);
  EXPECT_EQ(width({{"block_auto_adjust_ff_dim", false}}), 100);

  EXPECT_THAT(error_of_keys({{"conv_bias", true}}, kClass), HasSubstr("conv_bias: true"));
  EXPECT_THAT(error_of_keys({{"layer_types", {"conv", "conv"}}}, kClass),
              HasSubstr("expected one at least"));
  EXPECT_THAT(error_of_keys({{"layer_types", {"conv", "mamba"}}}, kClass), HasSubstr("\"mamba\""));
  EXPECT_THAT(error_of_keys({{"full_attn_idxs", 1}}, kClass), HasSubstr("an array of layers"));
  EXPECT_THAT(error_of_keys({{"full_attn_idxs", {"1"}}}, kClass), HasSubstr("expected layers"));
}

TEST(FamilyKeys, Lfm2WithExperts) {
  constexpr const char* kClass = "Lfm2MoeForCausalLM";
  const ModelSpec spec = parse_with({{"num_dense_layers", 1},
                                     {"num_experts", 5},
                                     {"num_experts_per_tok", 2},
                                     {"routed_scaling_factor", 1.5},
                                     {"use_expert_bias", false}},
                                    kClass);
  EXPECT_FALSE(spec.layer(0).feed_forward.experts);
  const auto& experts = spec.layer(1).feed_forward.experts;
  ASSERT_TRUE(experts);
  EXPECT_EQ(experts->score, ops::RouterScore::sigmoid);
  EXPECT_EQ(experts->scale, 1.5F);
  EXPECT_FALSE(experts->choice_bias);
  EXPECT_TRUE(experts->normalized);
  EXPECT_EQ(parse_with({{"num_dense_layers", 2}}, kClass).experts(), nullptr);
}

TEST(FamilyKeys, GraniteHasABaseForEachLayer) {
  constexpr const char* kClass = "GraniteSWAForCausalLM";
  const ModelSpec spec =
      parse_with({{"layer_rope_theta", {0, 500.0}}, {"sliding_window", 4}}, kClass);
  EXPECT_FALSE(spec.layer(0).attention()->rope);
  EXPECT_NE(*spec.layer(1).attention()->rope, *parse_with({}, kClass).layer(1).attention()->rope);
  EXPECT_EQ(spec.layer(0).attention()->reach.kind, Reach::Kind::full);
  EXPECT_EQ(spec.layer(1).attention()->reach.width, 4);
  EXPECT_THAT(error_of_keys({{"layer_rope_theta", {1}}}, kClass), HasSubstr("each of 2 layers"));
  EXPECT_THAT(error_of_keys({{"layer_rope_theta", {1, "x"}}}, kClass),
              HasSubstr("expected numbers"));
}

TEST(FamilyKeys, CohereWithExperts) {
  constexpr const char* kClass = "Cohere2MoeForCausalLM";
  EXPECT_THAT(error_of_keys({{"num_shared_experts", 1}}, kClass), HasSubstr("\"average\""));
  EXPECT_THAT(error_of_keys({{"expert_selection_fn", "top"}}, kClass), HasSubstr("\"top\""));
  const ModelSpec spec =
      parse_with({{"first_k_dense_replace", 1}, {"sliding_window_pattern", 2}}, kClass);
  EXPECT_FALSE(spec.layer(0).feed_forward.experts);
  EXPECT_TRUE(spec.layer(1).feed_forward.experts);
  EXPECT_EQ(spec.layer(0).attention()->reach.kind, Reach::Kind::full)
      << "the pattern begins behind it";
  EXPECT_TRUE(spec.layer(0).attention()->rope);
}

TEST(FamilyKeys, MellumAndHunyuan3) {
  EXPECT_THAT(error_of_keys({{"mlp_layer_types", {"dense", "sparse"}}}, "MellumForCausalLM"),
              HasSubstr("dense layers are not supported"));
  EXPECT_THAT(error_of_keys({{"mlp_bias", true}}, "HYV3ForCausalLM"), HasSubstr("mlp_bias"));
}

TEST(FamilyKeys, PhiMoeSaysItsAttentionFactors) {
  constexpr const char* kClass = "PhimoeForCausalLM";
  const auto longrope = [](const json& more) {
    json rope = {{"type", "longrope"},
                 {"short_factor", {1.0, 2.0}},
                 {"long_factor", {4.0, 8.0}},
                 {"original_max_position_embeddings", 16}};
    rope.update(more);
    return json{{"rope_scaling", rope}};
  };
  const json factors = {{"short_mscale", 1.25}, {"long_mscale", 1.5}};
  json keys = longrope(factors);
  EXPECT_EQ(parse_with(keys, kClass).attention().rope->attention_factor, 1.25F);
  keys["winnow_context"] = 32;
  EXPECT_EQ(parse_with(keys, kClass).attention().rope->attention_factor, 1.5F);
  EXPECT_THAT(error_of_keys(longrope({{"short_mscale", "x"}}), kClass), HasSubstr("short_mscale"));
}

TEST(FamilyKeys, PhiMoeTakesTwoExperts) {
  constexpr const char* kClass = "PhimoeForCausalLM";
  const ExpertsSpec experts =
      *parse_with({{"router_jitter_noise", 0.25}}, kClass).layer(0).feed_forward.experts;
  EXPECT_EQ(experts.score, ops::RouterScore::sparse_mixer);
  EXPECT_EQ(experts.nearness, 0.5F);
  EXPECT_EQ(experts.count, 16);
  EXPECT_THAT(error_of_keys({{"num_experts_per_tok", 3}}, kClass),
              HasSubstr("num_experts_per_tok 3 is not supported"));
}

// DeepSeek V3's sizes: an entry has 512 + 64 channels for any number of heads.
TEST(FamilyKeys, LatentsAreWhatLayersStore) {
  const json yarn = {{"type", "yarn"},
                     {"factor", 40.0},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"original_max_position_embeddings", 4096}};
  const ModelSpec spec = parse_with({{"hidden_size", 7168},
                                     {"num_attention_heads", 128},
                                     {"num_key_value_heads", 128},
                                     {"max_position_embeddings", 163840},
                                     {"rope_scaling", yarn}},
                                    "DeepseekV3ForCausalLM");
  const AttentionSpec& attention = spec.attention();
  EXPECT_EQ(attention.kv_heads, 1);
  EXPECT_EQ(attention.head_dim, 576);
  EXPECT_THAT(format_spec(spec).config, HasSubstr("\"num_key_value_heads\": 128"));
  EXPECT_EQ(attention.rope->channels(), 64);
  EXPECT_TRUE(attention.rope->interleaved);
  EXPECT_EQ(attention.latent->query_rank, 1536);
  const double mscale = 0.1 * std::log(40.0) + 1.0;
  EXPECT_NEAR(attention.scale, mscale * mscale / std::sqrt(192.0), 1e-7);
  EXPECT_EQ(attention.rope->attention_factor, 1.0F);
  EXPECT_EQ(cache_shape(spec).page_layout(ops::EntryFormat::bf16).entry_bytes(), 2U * 576U);
  EXPECT_EQ(cache_shape(spec).key_only, 64);
  EXPECT_EQ(cache_shape(spec).ropes.back().frequencies, attention.rope->frequencies);
  EXPECT_TRUE(cache_shape(spec).ropes.back().interleaved);
  EXPECT_FALSE(parse_with({{"rope_interleave", false}}, "DeepseekV3ForCausalLM")
                   .attention()
                   .rope->interleaved);
  EXPECT_EQ(
      parse_with({{"q_lora_rank", nullptr}}, "MiniCPM3ForCausalLM").attention().latent->key_dim,
      64);
}

TEST(FamilyKeys, LatentsHaveNoChannelToBorrow) {
  constexpr const char* kClass = "DeepseekV2ForCausalLM";
  const json experts = {{"num_experts_per_tok", 2}};
  const auto with = [&](const json& more) {
    json keys = experts;
    keys.update(more);
    return keys;
  };
  EXPECT_THAT(error_of_keys(with({{"dms_window_size", 8}}), kClass),
              HasSubstr("latent attention has no channel to borrow"));
  EXPECT_THAT(error_of_keys(with({{"dmc_alpha_offset", 5.0}}), kClass),
              HasSubstr("latent attention has no channel to borrow"));
  const ModelSpec taught =
      parse_with(with({{"dms_window_size", 8}, {"dms_separate_alpha", true}}), kClass);
  EXPECT_TRUE(taught.has_adapter(0));
}

TEST(FamilyKeys, DeepSeekV2ChoosesByTheBestOfAGroup) {
  constexpr const char* kClass = "DeepseekV2ForCausalLM";
  json keys = {
      {"num_experts_per_tok", 2}, {"n_routed_experts", 8}, {"n_group", 4}, {"topk_group", 2}};
  const auto experts = [&] { return *parse_with(keys, kClass).layer(0).feed_forward.experts; };
  EXPECT_EQ(experts().groups, 1);
  keys["topk_method"] = "group_limited_greedy";
  EXPECT_EQ(experts().groups, 4);
  EXPECT_EQ(experts().active_groups, 2);
  EXPECT_EQ(experts().best_of_group, 1);
  EXPECT_EQ(experts().score, ops::RouterScore::softmax);
  EXPECT_FALSE(experts().normalized);
  keys["topk_method"] = "noaux";
  EXPECT_THAT(error_of_keys(keys, kClass), HasSubstr("topk_method \"noaux\""));
  EXPECT_THAT(error_of_keys({{"num_experts_per_tok", 2}, {"norm_topk_prob", true}}, kClass),
              HasSubstr("norm_topk_prob: true is not supported"));
}

TEST(FamilyKeys, Gemma4WithoutEmbeddingsForEachLayer) {
  const ModelSpec spec = parse_with({}, "Gemma4UnifiedForCausalLM");
  EXPECT_FALSE(spec.layer_embeddings);
  EXPECT_EQ(spec.layer(0).attention()->reach.width,
            parse_with({}, "Gemma4ForCausalLM").layer(0).attention()->reach.width * 2);
}

}  // namespace
}  // namespace winnow::model
