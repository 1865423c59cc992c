// Keys of single families, and what is refused among them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint_testing.h"
#include "model/config.h"

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

TEST(FamilyKeys, Gemma4WithoutEmbeddingsForEachLayer) {
  const ModelSpec spec = parse_with({}, "Gemma4UnifiedForCausalLM");
  EXPECT_FALSE(spec.layer_embeddings);
  EXPECT_EQ(spec.layer(0).attention()->reach.width,
            parse_with({}, "Gemma4ForCausalLM").layer(0).attention()->reach.width * 2);
}

}  // namespace
}  // namespace winnow::model
