#include "model/config.h"
#include "model/families/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint_testing.h"
#include "model/supported.h"

namespace winnow::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string error_with(const json& changes, const std::string& architecture = "LlamaForCausalLM") {
  return error_of([&] { parse_with(changes, architecture); });
}

bool norms_heads(const ModelSpec& spec) {
  return spec.attention().query_key_norm == AttentionSpec::QueryKeyNorm::per_head;
}

RopeSpec rope_of(const ModelSpec& spec) {
  return *spec.attention().rope;
}

TEST(Config, ReadsTheSizes) {
  const ModelSpec config = parse(tiny_config());
  EXPECT_EQ(config.hidden, 16);
  EXPECT_EQ(config.layer_count(), 2);
  EXPECT_EQ(config.attention().heads, 4);
  EXPECT_EQ(config.attention().kv_heads, 2);
  EXPECT_EQ(config.attention().group(), 2);
  EXPECT_EQ(config.attention().head_dim, 4);
  EXPECT_EQ(config.layer(0).feed_forward.intermediate, 24);
  EXPECT_EQ(config.vocab, 32);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_FALSE(config.dms.has_value());
  EXPECT_FALSE(config.dmc.has_value());
}

TEST(Config, Families) {
  const ModelSpec llama = parse(tiny_config("LlamaForCausalLM"));
  EXPECT_EQ(llama.family, "llama");
  EXPECT_FALSE(llama.attention().qkv_bias || norms_heads(llama));
  const ModelSpec qwen2 = parse(tiny_config("Qwen2ForCausalLM"));
  EXPECT_EQ(qwen2.family, "qwen2");
  EXPECT_TRUE(qwen2.attention().qkv_bias);
  EXPECT_EQ(parse_with({{"model_type", "mimo"}}, "MiMoForCausalLM"), qwen2);
  const ModelSpec qwen3 = parse(tiny_config("Qwen3ForCausalLM"));
  EXPECT_EQ(qwen3.family, "qwen3");
  EXPECT_TRUE(norms_heads(qwen3));
  EXPECT_FALSE(qwen3.attention().qkv_bias);
  EXPECT_EQ(parse(tiny_config("MistralForCausalLM")).family, "mistral");
}

TEST(Config, ModelTypeCountsWhenNoArchitectureIsNamed) {
  EXPECT_EQ(parse_with({{"architectures", nullptr}, {"model_type", "qwen3"}}).family, "qwen3");
  EXPECT_EQ(parse_with({{"architectures", json::array()}, {"model_type", "mistral"}}).family,
            "mistral");
}

TEST(Config, UnknownArchitecturesAreNamed) {
  EXPECT_EQ(error_with({}, "BloomForCausalLM"),
            "dir/config.json: architecture \"BloomForCausalLM\" is not supported; winnow inspect "
            "--architectures lists those that are");
  EXPECT_THAT(error_with({{"architectures", nullptr}, {"model_type", "gpt2"}}),
              HasSubstr("architecture \"gpt2\" is not supported"));
  EXPECT_THAT(error_with({{"architectures", nullptr}}), HasSubstr("architecture \"\""));
  EXPECT_THAT(error_with({{"architectures", "LlamaForCausalLM"}}),
              HasSubstr("architectures: expected an array of strings"));
  EXPECT_THAT(error_with({{"architectures", {3}}}), HasSubstr("an array of strings"));
}

TEST(Config, SpellingsOfArchitectures) {
  for (const char* name : {"LLaMAForCausalLM", "LlaMaForCausalLM", "LlamaModel"}) {
    EXPECT_EQ(parse_with({}, name).family, "llama") << name;
  }
  EXPECT_EQ(parse_with({{"model_type", "llama"}}, "LLaMAForCausalLM").family, "llama");
  EXPECT_EQ(parse_with({}, "Qwen3Model").family, "qwen3");
  EXPECT_THAT(error_with({}, "LlamaForSequenceClassification"), HasSubstr("is not supported"));
  EXPECT_THAT(error_with({{"model_type", "qwen2"}}, "LLaMAForCausalLM"), HasSubstr("contradict"));
}

TEST(Config, WhatFamiliesAssume) {
  const auto kv_heads = [](json config) {
    config["num_attention_heads"] = 64;
    config["num_key_value_heads"] = nullptr;
    EXPECT_EQ(parse(config).attention().kv_heads, 64) << "null: as many as heads";
    config.erase("num_key_value_heads");
    return parse(config).attention().kv_heads;
  };
  EXPECT_EQ(kv_heads(tiny_config("LlamaForCausalLM")), 64);
  EXPECT_EQ(kv_heads(tiny_config("MistralForCausalLM")), 8);
  EXPECT_EQ(kv_heads(tiny_config("Qwen2ForCausalLM")), 32);
  EXPECT_EQ(kv_heads(tiny_config("Qwen3ForCausalLM")), 32);
  EXPECT_EQ(kv_heads(tiny_config("Gemma2ForCausalLM")), 4);

  const auto width = [](json config) {
    config["max_position_embeddings"] = 32768;
    config["sliding_window"] = nullptr;
    EXPECT_EQ(parse(config).layer(0).attention()->reach.width, 0) << "null: none";
    config.erase("sliding_window");
    return parse(config).layer(0).attention()->reach.width;
  };
  EXPECT_EQ(width(tiny_config("MistralForCausalLM")), 4096);
  EXPECT_EQ(width(tiny_config("Gemma2ForCausalLM")), 4096);
  EXPECT_EQ(width(tiny_config("Qwen2ForCausalLM")), 0);
  json qwen = tiny_config("Qwen2ForCausalLM");
  qwen.update({{"use_sliding_window", true}, {"max_window_layers", 0}});
  EXPECT_EQ(width(qwen), 4096);

  json without = tiny_config("Gemma2ForCausalLM");
  without["final_logit_softcapping"] = nullptr;
  without["attn_logit_softcapping"] = nullptr;
  const ModelSpec uncapped = parse(without);
  EXPECT_EQ(uncapped.final_soft_cap, 0.0F);
  EXPECT_EQ(uncapped.attention().soft_cap, 0.0F);
}

TEST(Config, AbsentKeysGetTransformersDefaults) {
  const ModelSpec config = parse_with({{"head_dim", nullptr},
                                       {"num_key_value_heads", nullptr},
                                       {"max_position_embeddings", nullptr},
                                       {"torch_dtype", nullptr}});
  EXPECT_EQ(config.attention().head_dim, 4);
  EXPECT_EQ(config.attention().kv_heads, 4);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.final_norm.eps, 1e-6F);
  EXPECT_EQ(rope_of(config), (RopeSpec{{1.0F, 0.01F}}));
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_EQ(parse_with({{"head_dim", nullptr}}, "Qwen3ForCausalLM").attention().head_dim, 128);
}

TEST(Config, HeadDimNeedNotDivideTheHiddenSize) {
  EXPECT_EQ(parse_with({{"head_dim", 6}}, "Qwen3ForCausalLM").attention().head_dim, 6);
  EXPECT_THAT(error_with({{"head_dim", nullptr}, {"hidden_size", 18}}),
              HasSubstr("hidden_size to be a multiple of num_attention_heads, got 18 and 4"));
  EXPECT_THAT(error_with({{"head_dim", 5}}), HasSubstr("an even head_dim from 2 to 4096, got 5"));
}

TEST(Config, RopeClassicAndOfTransformers5) {
  const auto rope_with = [](const json& changes) { return rope_of(parse_with(changes)); };
  const RopeSpec of_5{{1.0F, static_cast<float>(1.0 / std::sqrt(5.0))}};
  // A key inside an object wins over the same key outside, and the classic object over the new one.
  EXPECT_EQ(rope_with({{"rope_theta", 3.0}, {"rope_scaling", {{"rope_theta", 5.0}}}}), of_5);
  EXPECT_EQ(rope_with({{"rope_theta", 3.0}, {"rope_parameters", {{"rope_theta", 5.0}}}}), of_5);
  EXPECT_EQ(rope_with({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
                       {"rope_parameters", {{"rope_theta", 5.0}}}}),
            (RopeSpec{{0.5F, 0.005F}}));
}

TEST(Config, LengthDependentRopeServesTheContextItIsSetUpFor) {
  json longrope = {{"rope_scaling",
                    {{"type", "longrope"},
                     {"short_factor", {1.0, 2.0}},
                     {"long_factor", {4.0, 8.0}},
                     {"original_max_position_embeddings", 16}}}};
  const ModelSpec brief = parse_with(longrope);
  EXPECT_EQ(brief.max_positions, 16);
  EXPECT_EQ(rope_of(brief).frequencies, (std::vector{1.0F, 0.005F}));
  longrope["winnow_context"] = 17;
  const ModelSpec long_one = parse_with(longrope);
  EXPECT_EQ(long_one.max_positions, 17);
  EXPECT_EQ(rope_of(long_one).frequencies, (std::vector{0.25F, 0.00125F}));
  EXPECT_EQ(rope_of(long_one).attention_factor, rope_of(brief).attention_factor);

  const json dynamic = {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}};
  EXPECT_EQ(parse_with(dynamic).max_positions, 64);
  json wider = dynamic;
  wider["winnow_context"] = 128;
  EXPECT_EQ(parse_with(wider).max_positions, 128);
  EXPECT_LT(rope_of(parse_with(wider)).frequencies[1], rope_of(parse_with(dynamic)).frequencies[1]);

  // Set as on the command line; the saved key keeps the value.
  ConfigTexts texts{"dir", tiny_config().dump(), {}, {}, 32};
  EXPECT_EQ(parse_spec(texts).max_positions, 32);
  EXPECT_THAT(format_spec(parse_spec(texts)).config, HasSubstr("\"winnow_context\": 32"));
  EXPECT_EQ(parse_with({{"winnow_context", 32}}).max_positions, 32);
  EXPECT_THAT(
      error_with({{"winnow_context", 65}}),
      HasSubstr(
          "winnow_context (--rope-context): 65 tokens are more than the model's 64 positions"));
}

TEST(Config, YarnStretchesAPlainRope) {
  const json said = {
      {"max_position_embeddings", 256},
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}}}};
  const ModelSpec asked = parse_with({{"winnow_yarn", 4.0}});
  EXPECT_EQ(rope_of(asked), rope_of(parse_with(said)));
  EXPECT_GT(rope_of(asked).attention_factor, 1.1F);
  EXPECT_EQ(asked.max_positions, 256);
  EXPECT_EQ(parse_with({{"winnow_yarn", 4.0}, {"winnow_context", 100}}).max_positions, 100);
  // transformers 5 has rope_theta inside rope_parameters.
  const json inside = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5.0}}}};
  json stretched = inside;
  stretched["winnow_yarn"] = 1.0;
  EXPECT_EQ(rope_of(parse_with(stretched)), rope_of(parse_with(inside)));

  // Set as on the command line; the saved key keeps the value.
  const ConfigTexts texts{"dir", tiny_config().dump(), {}, {}, {.yarn = 4.0}};
  EXPECT_EQ(rope_of(parse_spec(texts)), rope_of(asked));
  EXPECT_THAT(format_spec(parse_spec(texts)).config, HasSubstr("\"winnow_yarn\": 4.0"));

  EXPECT_THAT(
      error_with({{"winnow_yarn", 2.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
      HasSubstr("winnow_yarn (--rope-yarn): the model's RoPE is of type \"linear\", expected a "
                "plain one"));
  EXPECT_THAT(error_with({{"winnow_yarn", 0.5}}),
              HasSubstr("winnow_yarn: expected a number from 1 to 1000000, got 0.5"));
  EXPECT_THAT(error_with({{"winnow_yarn", 1e6}, {"max_position_embeddings", 1 << 20}}),
              HasSubstr("winnow_yarn (--rope-yarn): 1000000 times 1048576 positions are more"));
  EXPECT_THAT(error_with({{"winnow_yarn", 4.0}, {"winnow_context", 257}}),
              HasSubstr("257 tokens are more than the model's 256 positions"));
}

TEST(Config, RopeErrors) {
  EXPECT_THAT(error_with({{"rope_scaling", {{"rope_type", "spiral"}, {"factor", 4.0}}}}),
              AllOf(HasSubstr("config.json: rope_scaling: RoPE type \"spiral\" is not supported"),
                    HasSubstr("llama3 and proportional")));
  EXPECT_THAT(error_with({{"partial_rotary_factor", 0.5},
                          {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}),
              HasSubstr("partial_rotary_factor 0.5 beside RoPE type \"linear\""));
  EXPECT_THAT(error_with({{"rope_parameters", {{"full_attention", {{"rope_theta", 5.0}}}}}}),
              HasSubstr("rope_parameters: RoPE by layer type is not supported for this family"));
  EXPECT_THAT(error_with({{"rope_parameters", {{"rope_theta", 5.0}}}}, "Gemma3ForCausalLM"),
              HasSubstr("rope_parameters: expected \"full_attention\" and \"sliding_attention\""));
  EXPECT_THAT(error_with({{"rope_scaling",
                           {{"rope_type", "longrope"},
                            {"short_factor", {1.0, 0.0}},
                            {"long_factor", {1.0, 2.0}}}}}),
              HasSubstr("rope_scaling: short_factor: expected a list of 2 numbers above 0"));
  EXPECT_THAT(error_with({{"rope_scaling", {{"type", "linear"}}}}),
              HasSubstr("rope_scaling: factor: expected a number from 1 to 1000000, got nothing"));
  EXPECT_THAT(error_with({{"rope_scaling", 3}}), HasSubstr("rope_scaling: expected an object"));
  EXPECT_THAT(error_with({{"rope_theta", -1.0}}), HasSubstr("rope_theta: expected a number"));
  EXPECT_THAT(error_with({{"rope_theta", "10000"}}), HasSubstr("got \"10000\""));
  EXPECT_THAT(error_with({{"partial_rotary_factor", 0.25}}, "Phi3ForCausalLM"),
              HasSubstr("partial_rotary_factor 0.25 of a head_dim of 4 rotates 1 channels"));
  EXPECT_THAT(error_with({{"rope_scaling",
                           {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 4},
                            {"high_freq_factor", 4}}}}),
              HasSubstr("low_freq_factor below high_freq_factor"));
}

TEST(Config, DtypeUnderBothNames) {
  EXPECT_EQ(parse_with({{"torch_dtype", "float16"}}).dtype, DType::f16);
  EXPECT_EQ(parse_with({{"torch_dtype", nullptr}, {"dtype", "float32"}}).dtype, DType::f32);
  EXPECT_THAT(error_with({{"torch_dtype", "int8"}}),
              HasSubstr("torch_dtype: expected \"float32\", \"float16\" or \"bfloat16\", got "
                        "\"int8\""));
}

TEST(Config, SpellingsOfDtypes) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const auto dtype = [&](const char* name) {
      json config = tiny_config();
      config.erase("torch_dtype");
      config[key] = name;
      return parse(config).dtype;
    };
    EXPECT_EQ(dtype("torch.bfloat16"), DType::bf16);
    EXPECT_EQ(dtype("torch.float16"), DType::f16);
    EXPECT_EQ(dtype("half"), DType::f16);
    EXPECT_EQ(dtype("torch.float"), DType::f32);
    EXPECT_EQ(dtype("float64"), DType::f32);
    EXPECT_EQ(dtype("auto"), DType::bf16);
  }
}

TEST(Config, Tokens) {
  EXPECT_THAT(parse(tiny_config()).eos_tokens, IsEmpty());
  const ModelSpec one = parse_with({{"bos_token_id", 1}, {"eos_token_id", 2}});
  EXPECT_EQ(one.bos_token, 1);
  EXPECT_THAT(one.eos_tokens, ElementsAre(2));
  EXPECT_THAT(parse_with({{"eos_token_id", {2, 3}}}).eos_tokens, ElementsAre(2, 3));

  json config = tiny_config();
  config["eos_token_id"] = 2;
  const auto both = [&](const std::string& generation) {
    return parse_spec(ConfigTexts{"dir", config.dump(), generation, {}});
  };
  EXPECT_THAT(both(R"({"eos_token_id": [4, 5]})").eos_tokens, ElementsAre(4, 5));
  EXPECT_THAT(both(R"({"eos_token_id": 6, "bos_token_id": 7})").eos_tokens, ElementsAre(6));
  EXPECT_EQ(both(R"({"bos_token_id": 7})").bos_token, 7);
  EXPECT_THAT(both("{}").eos_tokens, ElementsAre(2));
  // Small models that still have the ids of their large relatives.
  EXPECT_THAT(both(R"({"eos_token_id": [4, 32, -1]})").eos_tokens, ElementsAre(4));
  EXPECT_THAT(parse_with({{"eos_token_id", -1}}).eos_tokens, IsEmpty());
  EXPECT_EQ(parse_with({{"bos_token_id", 151643}}).bos_token, std::nullopt);
  EXPECT_THAT(error_of([&] { both("{"); }),
              StartsWith("dir/generation_config.json: not valid JSON"));
  EXPECT_THAT(error_with({{"eos_token_id", "</s>"}}), HasSubstr("eos_token_id: expected"));
}

TEST(Config, SizesAreBounded) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "intermediate_size", "vocab_size", "max_position_embeddings", "head_dim"}) {
    const std::string expected = fmt::format("dir/config.json: {}: expected an integer from", key);
    for (const json& bad :
         {json(0), json(-1), json(1e18), json(9223372036854775807LL), json(18446744073709551615ULL),
          json("4"), json(2.5), json(true), json::array()}) {
      EXPECT_THAT(error_with({{key, bad}}), HasSubstr(expected)) << bad;
    }
  }
  EXPECT_THAT(error_with({{"hidden_size", nullptr}}),
              HasSubstr("hidden_size: expected an integer from 1 to 1048576, got nothing"));
  EXPECT_THAT(error_with({{"num_key_value_heads", 3}}),
              HasSubstr("multiple of num_key_value_heads, got 4 and 3"));
}

TEST(Config, WhatWouldChangeTheComputationIsRejected) {
  EXPECT_THAT(error_with({{"hidden_act", "mish"}}), HasSubstr("hidden_act \"mish\""));
  EXPECT_THAT(
      error_with(
          {{"full_attention_interval", 2}, {"partial_rotary_factor", 1.0}, {"hidden_act", "gelu"}},
          "Qwen3NextForCausalLM"),
      HasSubstr("hidden_act: expected \"silu\""));
  EXPECT_THAT(error_with({{"tie_word_embeddings", 1}}),
              HasSubstr("tie_word_embeddings: expected true or false, got 1"));
}

TEST(Config, Biases) {
  const auto biases = [](const json& more, const std::string& architecture) {
    const ModelSpec config = parse_with(more, architecture);
    return std::vector<bool>{config.attention().qkv_bias, config.attention().output_bias,
                             config.layer(0).feed_forward.bias};
  };
  const json both = {{"attention_bias", true}, {"mlp_bias", true}};
  EXPECT_THAT(biases({}, "LlamaForCausalLM"), ElementsAre(false, false, false));
  EXPECT_THAT(biases(both, "LlamaForCausalLM"), ElementsAre(true, true, true));
  EXPECT_THAT(biases(both, "Qwen3ForCausalLM"), ElementsAre(true, true, false));
  EXPECT_THAT(biases(both, "Qwen2ForCausalLM"), ElementsAre(true, false, false));
  EXPECT_THAT(biases(both, "MistralForCausalLM"), ElementsAre(false, false, false));
}

TEST(Config, TheTwoNamesOfAnArchitectureMustAgree) {
  EXPECT_THAT(error_with({{"model_type", "mistral"}}), HasSubstr("contradict"));
  EXPECT_EQ(error_with({{"model_type", "something_of_our_own"}}), "no error");
}

TEST(Config, SlidingLayers) {
  // The reach of each layer; 0: full attention.
  const auto reach = [](const json& more, const std::string& architecture) {
    const ModelSpec spec = parse_with(more, architecture);
    std::vector<int> result;
    for (const LayerSpec& layer : spec.layers) {
      result.push_back(layer.attention()->reach.width);
      EXPECT_EQ(layer.compresses(), result.back() == 0);
    }
    EXPECT_EQ(spec.max_positions, 64);
    return result;
  };
  EXPECT_THAT(reach({{"sliding_window", 32}}, "MistralForCausalLM"), ElementsAre(32, 32));
  EXPECT_THAT(reach({{"sliding_window", 640}}, "MistralForCausalLM"), ElementsAre(0, 0));
  EXPECT_THAT(reach({{"sliding_window", nullptr}}, "MistralForCausalLM"), ElementsAre(0, 0));

  const json qwen = {{"sliding_window", 32}, {"use_sliding_window", false}};
  EXPECT_THAT(reach(qwen, "Qwen2ForCausalLM"), ElementsAre(0, 0));
  for (const char* family : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    EXPECT_THAT(reach({{"sliding_window", 0}}, family), ElementsAre(0, 0)) << "it is not in use";
  }
  EXPECT_THAT(error_with({{"sliding_window", 0}}, "MistralForCausalLM"),
              HasSubstr("sliding_window: expected an integer from 1"));
  json used = qwen;
  used["use_sliding_window"] = true;
  EXPECT_THAT(reach(used, "Qwen2ForCausalLM"), ElementsAre(0, 0)) << "it begins at layer 28";
  used["max_window_layers"] = 0;
  EXPECT_THAT(reach(used, "Qwen2ForCausalLM"), ElementsAre(32, 32));
  EXPECT_THAT(reach(used, "LlamaForCausalLM"), ElementsAre(0, 0)) << "transformers ignores it";
  used["max_window_layers"] = 1;
  EXPECT_THAT(reach(used, "Qwen2ForCausalLM"), ElementsAre(0, 32));

  const json types = {{"sliding_window", 32},
                      {"layer_types", {"sliding_attention", "full_attention"}}};
  EXPECT_THAT(reach(types, "Qwen3ForCausalLM"), ElementsAre(32, 0));
  EXPECT_THAT(
      error_with({{"layer_types", {"full_attention", "linear_attention"}}}, "Qwen3ForCausalLM"),
      HasSubstr("layer_types: \"linear_attention\" is not supported"));
  EXPECT_THAT(error_with({{"layer_types", {"full_attention"}}}, "Qwen3ForCausalLM"),
              HasSubstr("layer_types: expected a type for each of 2 layers, got 1"));
}

TEST(Config, Gemma2) {
  const ModelSpec spec = parse_with({{"query_pre_attn_scalar", 64},
                                     {"attn_logit_softcapping", 50.0},
                                     {"final_logit_softcapping", 30.0},
                                     {"sliding_window", 32}},
                                    "Gemma2ForCausalLM");
  EXPECT_FLOAT_EQ(spec.embedding_multiplier, std::sqrt(static_cast<float>(spec.hidden)));
  EXPECT_EQ(spec.final_soft_cap, 30.0F);
  EXPECT_EQ(spec.final_norm.kind, NormSpec::Kind::rms_plus_one);
  const LayerSpec& sliding = spec.layer(0);
  EXPECT_EQ(sliding.attention()->scale, 0.125F) << "1 / sqrt(64), whatever head_dim is";
  EXPECT_EQ(sliding.attention()->soft_cap, 50.0F);
  EXPECT_EQ(sliding.attention()->reach, (Reach{Reach::Kind::sliding, 32}));
  EXPECT_EQ(spec.layer(1).attention()->reach, Reach{}) << "every second layer is full";
  EXPECT_TRUE(sliding.norm_before && sliding.norm_after);
  EXPECT_EQ(sliding.norm.kind, NormSpec::Kind::rms_plus_one);
  EXPECT_EQ(sliding.feed_forward.activation, ops::Activation::gelu_tanh);
}

TEST(Config, Gemma2WithoutItsOwnKeys) {
  const ModelSpec spec = parse(tiny_config("Gemma2ForCausalLM"));
  EXPECT_EQ(spec.attention().soft_cap, 50.0F);
  EXPECT_EQ(spec.final_soft_cap, 30.0F);
  EXPECT_EQ(spec.layer(0).attention()->reach, Reach{}) << "4,096 is more than its positions";
  EXPECT_EQ(spec.attention().scale, 0.0625F) << "query_pre_attn_scalar is 256 by default";
}

TEST(Config, Gemma2Errors) {
  const auto error = [](const json& more) { return error_with(more, "Gemma2ForCausalLM"); };
  EXPECT_THAT(error({{"attn_logit_softcapping", -1.0}}), HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(error({{"query_pre_attn_scalar", 0}}), HasSubstr("query_pre_attn_scalar"));
  EXPECT_THAT(error({{"hidden_activation", "tanh"}}), HasSubstr("hidden_activation"));
  EXPECT_THAT(error({{"sliding_window", 0}}), HasSubstr("sliding_window"));
}

TEST(Config, PythonsConstantsMatterWhereTheyAreRead) {
  const auto with = [](const std::string& more) {
    std::string text = tiny_config().dump();
    text.back() = ',';
    return parse_spec(ConfigTexts{"dir", text + more + "}", {}, {}});
  };
  EXPECT_EQ(with(R"("time_step_limit": [0.0, Infinity], "x": NaN, "y": -Infinity)").hidden, 16);
  EXPECT_THAT(error_of([&] { (void)with(R"("rope_theta": NaN)"); }),
              HasSubstr("rope_theta: expected a number from 1 to"));
  EXPECT_THAT(
      format_spec(with(R"("x": NaN, "y": [-Infinity], "NaN": 1)")).config,
      AllOf(HasSubstr("\"NaN\": 1"), HasSubstr("\"x\": NaN,"), HasSubstr("    -Infinity\n")));
}

TEST(Config, ExpertsOfMixtral) {
  const ModelSpec spec = parse_with({{"num_local_experts", 6}}, "MixtralForCausalLM");
  ASSERT_NE(spec.experts(), nullptr);
  const ExpertsSpec expected{.count = 6, .active = 2, .normalized = true};
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(layer.feed_forward.experts, expected);
    EXPECT_EQ(layer.feed_forward.intermediate, 24);
  }
  EXPECT_EQ(spec.dense_width(), 0);
  EXPECT_STREQ(beyond_plain(spec), "experts");
  EXPECT_TRUE(
      expected_tensors(spec).contains("model.layers.1.block_sparse_moe.experts.5.w3.weight"));
  EXPECT_THAT(error_with({{"num_experts_per_tok", 9}}, "MixtralForCausalLM"),
              HasSubstr("num_experts_per_tok"));
}

// transformers reads none of the keys for which layers of Qwen 3.5 have experts, or for how their
// weights are normalised.
TEST(Config, ExpertsOfQwen3_5AreInAllLayers) {
  const ModelSpec spec = parse_with({{"num_hidden_layers", 4},
                                     {"head_dim", 8},
                                     {"decoder_sparse_step", 2},
                                     {"mlp_only_layers", {0}},
                                     {"norm_topk_prob", false}},
                                    "Qwen3_5MoeForCausalLM");
  for (const LayerSpec& layer : spec.layers) {
    ASSERT_TRUE(layer.feed_forward.experts);
    EXPECT_TRUE(layer.feed_forward.experts->normalized);
  }
}

TEST(Config, ExpertsOfSolarOpenAreInAllLayers) {
  const ModelSpec spec = parse_with({{"first_k_dense_replace", 1}}, "SolarOpenForCausalLM");
  EXPECT_TRUE(spec.layer(0).feed_forward.experts);
}

// EXAONE 3 as published, and as transformers saves it after loading it as Llama.
TEST(Config, Exaone) {
  const ModelSpec spec = parse_with({{"num_hidden_layers", nullptr},
                                     {"num_layers", 3},
                                     {"layer_norm_epsilon", 0.25},
                                     {"activation_function", "gelu"}},
                                    "ExaoneForCausalLM");
  EXPECT_EQ(spec.layer_count(), 3);
  EXPECT_EQ(spec.layer(0).norm.eps, 0.25F);
  EXPECT_EQ(spec.layer(0).feed_forward.activation, ops::Activation::gelu);
  EXPECT_EQ(parse_with({{"model_type", "exaone"}}).family, "exaone");
}

TEST(Config, GptJ) {
  const json keys = {{"hidden_size", nullptr},
                     {"n_embd", 16},
                     {"num_attention_heads", nullptr},
                     {"num_key_value_heads", nullptr},
                     {"n_head", 2},
                     {"num_hidden_layers", nullptr},
                     {"n_layer", 3},
                     {"head_dim", nullptr},
                     {"rotary_dim", 4},
                     {"intermediate_size", nullptr},
                     {"n_inner", nullptr}};
  const ModelSpec spec = parse_with(keys, "GPTJForCausalLM");
  EXPECT_EQ(spec.layer_count(), 3);
  EXPECT_EQ(spec.attention().kv_heads, 2);
  EXPECT_EQ(spec.attention().rope->channels(), 4);
  EXPECT_TRUE(spec.attention().rope->interleaved);
  EXPECT_EQ(spec.layer(0).feed_forward.intermediate, 64);
}

TEST(Config, ExpertsOfQwen) {
  const json keys = {{"num_hidden_layers", 4},
                     {"num_experts", 6},
                     {"num_experts_per_tok", 3},
                     {"moe_intermediate_size", 8},
                     {"decoder_sparse_step", 2},
                     {"mlp_only_layers", {3}},
                     {"shared_expert_intermediate_size", 20}};
  const ModelSpec qwen2 = parse_with(keys, "Qwen2MoeForCausalLM");
  const ExpertsSpec expected{
      .count = 6, .active = 3, .shared_intermediate = 20, .shared_gate = true};
  for (const int layer : {0, 2, 3}) {
    EXPECT_FALSE(qwen2.layer(layer).feed_forward.experts) << layer;
    EXPECT_EQ(qwen2.layer(layer).feed_forward.intermediate, 24);
  }
  EXPECT_EQ(qwen2.layer(1).feed_forward.experts, expected);
  EXPECT_EQ(qwen2.layer(1).feed_forward.intermediate, 8);
  EXPECT_EQ(qwen2.layer(1).feed_forward.active_width(), 20 + 3 * 8);
  EXPECT_EQ(qwen2.dense_width(), 24);
  const ModelSpec qwen3 = parse_with(keys, "Qwen3MoeForCausalLM");
  EXPECT_EQ(qwen3.layer(1).feed_forward.experts, (ExpertsSpec{.count = 6, .active = 3}));
  EXPECT_TRUE(norms_heads(qwen3));
  EXPECT_TRUE(
      parse_with({{"norm_topk_prob", true}}, "Qwen3MoeForCausalLM").experts()->experts->normalized);
  EXPECT_EQ(parse_with({{"num_experts", 0}}, "Qwen3MoeForCausalLM").experts(), nullptr);
  EXPECT_THAT(error_with({{"mlp_only_layers", {"all"}}}, "Qwen3MoeForCausalLM"),
              HasSubstr("mlp_only_layers: expected layers, got \"all\""));
}

TEST(Config, HybridsOfQwen) {
  const json keys = {{"num_hidden_layers", 3},
                     {"head_dim", 16},
                     {"num_experts", 6},
                     {"num_experts_per_tok", 2},
                     {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                     {"linear_num_key_heads", 2},
                     {"linear_num_value_heads", 6},
                     {"linear_key_head_dim", 8},
                     {"linear_value_head_dim", 10}};
  const ModelSpec next = parse_with(keys, "Qwen3NextForCausalLM");
  const RecurrentSpec expected{
      .heads = {.key_heads = 2, .value_heads = 6, .key_dim = 8, .value_dim = 10}, .taps = 4};
  ASSERT_NE(next.layer(0).recurrent(), nullptr);
  EXPECT_EQ(*next.layer(2).recurrent(), expected);
  EXPECT_EQ(expected.channels(), 2 * 16 + 60);
  EXPECT_EQ(expected.state_size(), 6 * 8 * 10 + 3 * 92);
  EXPECT_EQ(next.layer(1).recurrent(), nullptr);
  EXPECT_EQ(next.attention_before(2), 1);
  EXPECT_EQ(next.recurrent_before(3), 2);
  EXPECT_EQ(next.cached_heads(), next.attention().kv_heads);
  EXPECT_TRUE(next.attention().output_gate && norms_heads(next));
  EXPECT_EQ(rope_of(next).channels(), 4) << "a quarter, where the file does not say";
  EXPECT_EQ(next.final_norm.kind, NormSpec::Kind::rms_plus_one);
  EXPECT_TRUE(next.layer(0).feed_forward.experts->normalized);
  EXPECT_TRUE(next.layer(0).feed_forward.experts->shared_gate);
  const auto tensors = expected_tensors(next);
  const std::string at = "model.layers.0.linear_attn.";
  EXPECT_EQ(tensors.at(at + "in_proj_qkvz.weight"), (Shape{92 + 60, 16}));
  EXPECT_EQ(tensors.at(at + "conv1d.weight"), (Shape{92, 1, 4}));
  EXPECT_EQ(tensors.at("model.layers.1.self_attn.q_proj.weight"), (Shape{2 * 4 * 16, 16}));

  json dense = keys;
  dense.erase("layer_types");
  dense["num_hidden_layers"] = 8;
  const ModelSpec qwen = parse_with(dense, "Qwen3_5ForCausalLM");
  EXPECT_FALSE(qwen.layer(0).feed_forward.experts);
  for (int layer = 0; layer < 8; ++layer) {
    EXPECT_EQ(qwen.layer(layer).attention() != nullptr, layer == 3 || layer == 7) << layer;
  }
  EXPECT_TRUE(expected_tensors(qwen).contains(at + "in_proj_z.weight"));
  EXPECT_TRUE(parse_with(keys, "Qwen3_5MoeForCausalLM").experts()->experts->normalized);

  const auto error = [&](const json& changes) {
    json changed = keys;
    changed.update(changes);
    return error_with(changed, "Qwen3NextForCausalLM");
  };
  EXPECT_THAT(error({{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}),
              HasSubstr("layer_types: \"sliding_attention\" is not supported"));
  EXPECT_THAT(error({{"layer_types", {"full_attention"}}}), HasSubstr("a type for each of 3"));
  EXPECT_THAT(error({{"layer_types", nullptr}}), HasSubstr("no layer is \"full_attention\""));
  EXPECT_THAT(error({{"linear_num_value_heads", 5}}), HasSubstr("a multiple of"));
}

TEST(Config, GptOss) {
  const ModelSpec spec =
      parse_with({{"num_local_experts", 4}, {"sliding_window", 7}}, "GptOssForCausalLM");
  const ExpertsSpec expected{
      .count = 4, .active = 4, .score = ops::RouterScore::softmax_of_chosen, .router_bias = true};
  EXPECT_EQ(spec.experts()->experts, expected);
  EXPECT_EQ(spec.experts()->clamp, 7.0F);
  EXPECT_TRUE(spec.experts()->bias);
  EXPECT_TRUE(spec.attention().sinks && spec.attention().qkv_bias && spec.attention().output_bias);
  EXPECT_EQ(spec.layer(0).attention()->reach.width, 7);
  EXPECT_TRUE(spec.layer(1).compresses());
  EXPECT_TRUE(expected_tensors(spec).contains("model.layers.0.self_attn.sinks"));
  EXPECT_THAT(error_with({{"num_local_experts", 4}, {"swiglu_alpha", 1.0}}, "GptOssForCausalLM"),
              HasSubstr("swiglu_alpha: expected 1.702"));
}

TEST(Config, WhatFamiliesWithExpertsAssume) {
  const ModelSpec mixtral = parse_with({}, "MixtralForCausalLM");
  EXPECT_EQ(mixtral.final_norm.eps, 1e-5F);
  EXPECT_NEAR(rope_of(mixtral).frequencies[1], 1e-3, 1e-9);
  const ModelSpec gpt_oss = parse_with({}, "GptOssForCausalLM");
  EXPECT_EQ(gpt_oss.final_norm.eps, 1e-5F);
  EXPECT_NEAR(rope_of(gpt_oss).attention_factor, 0.1 * std::log(32.0) + 1.0, 1e-6);  // of YaRN
  const ModelSpec qwen2 = parse_with(
      {{"num_attention_heads", 32}, {"num_key_value_heads", nullptr}}, "Qwen2MoeForCausalLM");
  EXPECT_EQ(qwen2.attention().kv_heads, 16);
}

TEST(Config, SlidingLayersOfQwen2WithExperts) {
  const ModelSpec spec = parse_with({{"num_hidden_layers", 4},
                                     {"use_sliding_window", true},
                                     {"sliding_window", 7},
                                     {"max_window_layers", 2}},
                                    "Qwen2MoeForCausalLM");
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(spec.layer(layer).attention()->reach.width, layer == 0 ? 7 : 0) << layer;
  }
}

TEST(Config, BrokenJson) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_spec(ConfigTexts{"dir", text, {}, {}}); });
  };
  EXPECT_THAT(error(""), StartsWith("dir/config.json: not valid JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("config.json: expected a JSON object, got an array"));
  EXPECT_THAT(error("{\"a\":\"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\":1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\":{\"b\":1,\"b\":2}}"), HasSubstr("\"b\" appears twice"));
  EXPECT_THAT(error(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
}

json rope_parameters(const Family& family, const std::string& type) {
  const json one = {{"rope_type", type},
                    {"rope_theta", 5e5},
                    {"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 32},
                    {"llama_4_scaling_beta", 0.5}};
  const bool by_type = family.model_type == "gemma3_text" || family.model_type == "gemma4_text" ||
                       family.model_type == "gemma4_unified_text" ||
                       family.model_type == "mellum" || family.model_type == "olmo3";
  return by_type ? json{{"full_attention", one}} : one;
}

TEST(Config, FormatRoundTripsEveryFamily) {
  for (const Family& family : families()) {
    const std::string name(family.architecture);
    for (const char* rope : {"default", "linear", "llama3"}) {
      json keys = {{"bos_token_id", 1},
                   {"eos_token_id", {2, 3}},
                   {"rms_norm_eps", 1e-5},
                   {"tie_word_embeddings", true},
                   {"full_attention_interval", 2},  // a key of hybrids, like the next
                   {"attn_layer_indices", {0, 1}},
                   {"layers_block_type", {"attention", "attention"}},
                   {"partial_rotary_factor", 1.0},
                   {"rope_parameters", rope_parameters(family, rope)}};
      const ModelSpec spec = parse_with(keys, name);
      const ConfigTexts texts = format_spec(spec);
      EXPECT_EQ(parse_spec(texts), spec) << texts.config;
      EXPECT_THAT(texts.config, HasSubstr(name));
      EXPECT_THAT(texts.config, HasSubstr("\"rms_norm_eps\": 1e-05"));
    }
  }
}

TEST(Config, FalconsDifferInHeadsAndNorms) {
  const auto falcon = [](const json& keys) { return parse_with(keys, "FalconForCausalLM"); };
  const ModelSpec plain = falcon({{"num_ln_in_parallel_attn", nullptr}});
  EXPECT_EQ(plain.attention().kv_heads, 1);
  EXPECT_TRUE(plain.layers[0].parallel && plain.layers[0].shares_norm);
  EXPECT_EQ(plain.layers[0].feed_forward.intermediate, 4 * plain.hidden);
  EXPECT_EQ(falcon({{"multi_query", false}}).attention().kv_heads, plain.attention().heads);
  json grouped = {{"new_decoder_architecture", true}, {"num_kv_heads", 2}};
  EXPECT_EQ(falcon(grouped).attention().kv_heads, 2);
  EXPECT_FALSE(falcon(grouped).layers[0].shares_norm);
  grouped["num_ln_in_parallel_attn"] = 1;
  EXPECT_TRUE(falcon(grouped).layers[0].shares_norm);
  EXPECT_FALSE(falcon({{"parallel_attn", false}}).layers[0].parallel);
  grouped["num_kv_heads"] = 3;
  EXPECT_THAT(error_with(grouped, "FalconForCausalLM"), HasSubstr("a multiple of num_kv_heads"));
  EXPECT_THAT(error_with({{"alibi", true}}, "FalconForCausalLM"),
              HasSubstr("alibi: true is not supported"));
}

// The keys in Pythia's files, and those that transformers writes.
TEST(Config, RopeOfGptNeox) {
  const auto rope_of = [](const json& keys) {
    return *parse_with(keys, "GPTNeoXForCausalLM").attention().rope;
  };
  const json old = {{"rope_theta", nullptr}, {"rotary_pct", 0.5}, {"rotary_emb_base", 5e5}};
  const json own = {
      {"rope_theta", nullptr},
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 5e5}, {"partial_rotary_factor", 0.5}}}};
  EXPECT_EQ(rope_of(old), rope_of(own));
  EXPECT_EQ(rope_of(own).channels(), 2);
}

TEST(Config, FormatForgetsHowWeightsWereQuantised) {
  const ModelSpec spec = parse_with({{"quantization_config", {{"quant_method", "fp8"}}}});
  EXPECT_THAT(format_spec(spec).config, Not(HasSubstr("quant")));
}

TEST(Config, FormatKeepsWhatWinnowDoesNotRead) {
  const ModelSpec spec = parse_with({{"transformers_version", "4.57"}, {"head_dim", nullptr}});
  EXPECT_THAT(format_spec(spec).config, HasSubstr("\"transformers_version\": \"4.57\""));
}

void set_kv_heads(ModelSpec& spec, int kv_heads) {
  for (LayerSpec& layer : spec.layers) {
    std::get<AttentionSpec>(layer.mixer).kv_heads = kv_heads;
  }
}

TEST(Config, FormatRefusesWhatWouldNotReadBack) {
  ModelSpec config = parse(tiny_config());
  config.hidden = 17;
  EXPECT_THAT(error_of([&] { format_spec(config); }), HasSubstr("cannot be saved"));
  config = parse(tiny_config());
  config.dtype = DType::i8;
  EXPECT_THAT(error_of([&] { format_spec(config); }), HasSubstr("int8"));
  config = parse(tiny_config());
  set_kv_heads(config, 3);
  EXPECT_THAT(error_of([&] { format_spec(config); }), HasSubstr("num_key_value_heads"));
}

}  // namespace
}  // namespace winnow::model
