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
  json unrounded = tiny_config(kClass);  // null is not what an absent key is
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

TEST(FamilyKeys, Gemma4WithoutEmbeddingsForEachLayer) {
  const ModelSpec spec = parse_with({}, "Gemma4UnifiedForCausalLM");
  EXPECT_FALSE(spec.layer_embeddings);
  EXPECT_EQ(spec.layer(0).attention()->reach.width,
            parse_with({}, "Gemma4ForCausalLM").layer(0).attention()->reach.width * 2);
}

}  // namespace
}  // namespace winnow::model
