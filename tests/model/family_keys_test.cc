// Keys of single families, and what is refused among them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint_testing.h"
#include "model/config.h"
#include "model/model.h"

namespace winnow::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string error_of_keys(const json& keys, const std::string& architecture) {
  return error_of([&] { parse_with(keys, architecture); });
}

// Files of "-h" models say which layers are recurrent, under either key.
TEST(FamilyKeys, Granite4WithRecurrentLayers) {
  constexpr const char* kClass = "GraniteMoeHybridForCausalLM";
  for (const char* key : {"layer_types", "layers_block_type"}) {
    EXPECT_THAT(error_of_keys({{key, {"mamba", "attention"}}}, kClass), HasSubstr("Mamba 2"))
        << key;
    EXPECT_THAT(error_of_keys({{key, {"attention"}}}, kClass), HasSubstr("in each of 2 layers"));
    EXPECT_FALSE(parse_with({{key, {"attention", "attention"}}}, kClass).attention().rope);
  }
  const ModelSpec spec = parse_with({{"layer_types", {"attention", "full_attention"}},
                                     {"position_embedding_type", "rope"},
                                     {"num_local_experts", 0},
                                     {"shared_intermediate_size", 20}},
                                    kClass);
  EXPECT_TRUE(spec.attention().rope);
  EXPECT_EQ(spec.layer(0).feed_forward.intermediate, 20);
  EXPECT_FALSE(spec.layer(0).feed_forward.experts);
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

// DeepSeek V3's own numbers: an entry is 512 + 64, whatever the heads.
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
