#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_testing.h"

namespace winnow {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string error_with(const json& changes, const std::string& architecture = "LlamaForCausalLM") {
  return error_of([&] { parse_with(changes, architecture); });
}

TEST(Config, ReadsTheSizes) {
  const ModelConfig config = parse(tiny_config());
  EXPECT_EQ(config.hidden, 16);
  EXPECT_EQ(config.layers, 2);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.group(), 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.intermediate, 24);
  EXPECT_EQ(config.vocab, 32);
  EXPECT_EQ(config.max_positions, 64);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_FALSE(config.dms.has_value());
  EXPECT_FALSE(config.dmc.has_value());
}

TEST(Config, Families) {
  const ModelConfig llama = parse(tiny_config("LlamaForCausalLM"));
  EXPECT_EQ(llama.family, Family::llama);
  EXPECT_FALSE(llama.qkv_bias || llama.qk_norm);
  const ModelConfig qwen2 = parse(tiny_config("Qwen2ForCausalLM"));
  EXPECT_EQ(qwen2.family, Family::qwen2);
  EXPECT_TRUE(qwen2.qkv_bias);
  const ModelConfig qwen3 = parse(tiny_config("Qwen3ForCausalLM"));
  EXPECT_EQ(qwen3.family, Family::qwen3);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(parse(tiny_config("MistralForCausalLM")).family, Family::mistral);
}

TEST(Config, ModelTypeCountsWhenNoArchitectureIsNamed) {
  EXPECT_EQ(parse_with({{"architectures", nullptr}, {"model_type", "qwen3"}}).family,
            Family::qwen3);
  EXPECT_EQ(parse_with({{"architectures", json::array()}, {"model_type", "mistral"}}).family,
            Family::mistral);
}

TEST(Config, UnknownArchitecturesAreNamedWithTheKnownOnes) {
  EXPECT_THAT(error_with({}, "MixtralForCausalLM"),
              AllOf(StartsWith("dir/config.json: architecture \"MixtralForCausalLM\""),
                    HasSubstr("LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM and "
                              "MistralForCausalLM")));
  EXPECT_THAT(error_with({{"architectures", nullptr}, {"model_type", "gpt2"}}),
              HasSubstr("architecture \"gpt2\" is not supported"));
  EXPECT_THAT(error_with({{"architectures", nullptr}}), HasSubstr("architecture \"\""));
  EXPECT_THAT(error_with({{"architectures", "LlamaForCausalLM"}}),
              HasSubstr("architectures: expected an array of strings"));
  EXPECT_THAT(error_with({{"architectures", {3}}}), HasSubstr("an array of strings"));
}

TEST(Config, AbsentKeysGetTransformersDefaults) {
  const ModelConfig config = parse_with({{"head_dim", nullptr},
                                         {"num_key_value_heads", nullptr},
                                         {"max_position_embeddings", nullptr},
                                         {"torch_dtype", nullptr}});
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.norm_eps, 1e-6F);
  EXPECT_EQ(config.rope, RopeConfig{});
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_EQ(parse_with({{"head_dim", nullptr}}, "Qwen3ForCausalLM").head_dim, 128);
}

TEST(Config, HeadDimNeedNotDivideTheHiddenSize) {
  EXPECT_EQ(parse_with({{"head_dim", 6}}, "Qwen3ForCausalLM").head_dim, 6);
  EXPECT_THAT(error_with({{"head_dim", nullptr}, {"hidden_size", 18}}),
              HasSubstr("hidden_size to be a multiple of num_attention_heads, got 18 and 4"));
  EXPECT_THAT(error_with({{"head_dim", 5}}), HasSubstr("an even head_dim from 2 to 4096, got 5"));
}

TEST(Config, RopeClassicAndOfTransformers5) {
  const json llama3 = {{"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  const auto with = [](json object, const json& more) {
    object.update(more);
    return object;
  };
  const RopeConfig expected{500000.0, RopeConfig::Scaling::llama3, 32.0, 1.0, 4.0, 32};
  EXPECT_EQ(parse_with(
                {{"rope_theta", 500000}, {"rope_scaling", with(llama3, {{"rope_type", "llama3"}})}})
                .rope,
            expected);
  EXPECT_EQ(
      parse_with({{"rope_theta", 500000.0}, {"rope_scaling", with(llama3, {{"type", "llama3"}})}})
          .rope,
      expected);
  EXPECT_EQ(parse_with({{"rope_parameters",
                         with(llama3, {{"rope_type", "llama3"}, {"rope_theta", 500000.0}})}})
                .rope,
            expected);

  // What stands inside wins over what stands beside, the classic key over the new one.
  EXPECT_EQ(parse_with({{"rope_theta", 3.0}, {"rope_scaling", {{"rope_theta", 5.0}}}}).rope.theta,
            5.0);
  EXPECT_EQ(parse_with({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
                        {"rope_parameters", {{"rope_theta", 5.0}}}})
                .rope,
            (RopeConfig{10000.0, RopeConfig::Scaling::linear, 2.0}));

  const RopeConfig linear =
      parse_with({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}).rope;
  EXPECT_EQ(linear.scaling, RopeConfig::Scaling::linear);
  EXPECT_EQ(linear.factor, 2.0);
  const RopeConfig plain =
      parse_with({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}}).rope;
  EXPECT_EQ(plain.scaling, RopeConfig::Scaling::none);
  EXPECT_EQ(plain.theta, 1e6);
}

TEST(Config, RopeErrors) {
  EXPECT_THAT(error_with({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
              AllOf(HasSubstr("config.json: rope_scaling: RoPE type \"yarn\" is not supported"),
                    HasSubstr("default, linear and llama3")));
  EXPECT_THAT(error_with({{"rope_scaling", {{"type", "linear"}}}}),
              HasSubstr("rope_scaling: factor: expected a number from 1 to 1000000, got nothing"));
  EXPECT_THAT(error_with({{"rope_scaling", 3}}), HasSubstr("rope_scaling: expected an object"));
  EXPECT_THAT(error_with({{"rope_theta", -1.0}}), HasSubstr("rope_theta: expected a number"));
  EXPECT_THAT(error_with({{"rope_theta", "10000"}}), HasSubstr("got \"10000\""));
  EXPECT_THAT(error_with({{"partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor 0.5 is not supported"));
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
  EXPECT_THAT(error_with({{"torch_dtype", "float64"}}),
              HasSubstr("torch_dtype: expected \"float32\", \"float16\" or \"bfloat16\", got "
                        "\"float64\""));
}

TEST(Config, Tokens) {
  EXPECT_THAT(parse(tiny_config()).eos_tokens, IsEmpty());
  const ModelConfig one = parse_with({{"bos_token_id", 1}, {"eos_token_id", 2}});
  EXPECT_EQ(one.bos_token, 1);
  EXPECT_THAT(one.eos_tokens, ElementsAre(2));
  EXPECT_THAT(parse_with({{"eos_token_id", {2, 3}}}).eos_tokens, ElementsAre(2, 3));

  json config = tiny_config();
  config["eos_token_id"] = 2;
  const auto both = [&](const std::string& generation) {
    return parse_config({"dir", config.dump(), generation, {}});
  };
  EXPECT_THAT(both(R"({"eos_token_id": [4, 5]})").eos_tokens, ElementsAre(4, 5));
  EXPECT_THAT(both(R"({"eos_token_id": 6, "bos_token_id": 7})").eos_tokens, ElementsAre(6));
  EXPECT_EQ(both(R"({"bos_token_id": 7})").bos_token, 7);
  EXPECT_THAT(both("{}").eos_tokens, ElementsAre(2));
  // Small models that keep the ids of their large relatives.
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
  EXPECT_THAT(error_with({{"hidden_act", "gelu"}}), HasSubstr("hidden_act \"gelu\""));
  EXPECT_THAT(error_with({{"quantization_config", {{"quant_method", "awq"}}}}),
              HasSubstr("quantization_config"));
  EXPECT_THAT(error_with({{"tie_word_embeddings", 1}}),
              HasSubstr("tie_word_embeddings: expected true or false, got 1"));
}

TEST(Config, Biases) {
  const auto biases = [](const json& more, const std::string& architecture) {
    const ModelConfig config = parse_with(more, architecture);
    return std::vector<bool>{config.qkv_bias, config.output_bias, config.mlp_bias};
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

// Sequences no longer than a window that is in use run as if there was none.
TEST(Config, ASlidingWindowInUseLimitsThePositions) {
  const auto positions = [](const json& more, const std::string& architecture) {
    return parse_with(more, architecture).max_positions;
  };
  EXPECT_EQ(positions({{"sliding_window", 32}}, "MistralForCausalLM"), 32);
  EXPECT_EQ(positions({{"sliding_window", 640}}, "MistralForCausalLM"), 64);
  EXPECT_EQ(positions({{"sliding_window", nullptr}}, "MistralForCausalLM"), 64);

  const json qwen = {{"sliding_window", 32}, {"use_sliding_window", false}};
  EXPECT_EQ(positions(qwen, "Qwen2ForCausalLM"), 64);
  json used = qwen;
  used["use_sliding_window"] = true;
  EXPECT_EQ(positions(used, "Qwen2ForCausalLM"), 32);
  EXPECT_EQ(positions(used, "LlamaForCausalLM"), 64) << "transformers ignores it there";
  used["max_window_layers"] = 2;  // as many as there are: the window begins after the last layer
  EXPECT_EQ(positions(used, "Qwen2ForCausalLM"), 64);

  const json types = {{"sliding_window", 32},
                      {"layer_types", {"full_attention", "full_attention"}}};
  EXPECT_EQ(positions(types, "Qwen3ForCausalLM"), 64);
  EXPECT_EQ(
      positions({{"sliding_window", 32}, {"layer_types", {"full_attention", "sliding_attention"}}},
                "Qwen3ForCausalLM"),
      32);
  EXPECT_THAT(error_with({{"layer_types", {"linear_attention"}}}, "Qwen3ForCausalLM"),
              HasSubstr("layer_types: \"linear_attention\" is not supported"));
}

TEST(Config, BrokenJson) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_config({"dir", text, {}, {}}); });
  };
  EXPECT_THAT(error(""), StartsWith("dir/config.json: not valid JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("config.json: expected a JSON object, got an array"));
  EXPECT_THAT(error("{\"a\":\"\xFF\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\":1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error("{\"a\":{\"b\":1,\"b\":2}}"), HasSubstr("\"b\" appears twice"));
  EXPECT_THAT(error(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
}

TEST(Config, FormatRoundTripsEveryFamily) {
  for (const char* name :
       {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"}) {
    ModelConfig config = parse_with({{"bos_token_id", 1}, {"eos_token_id", {2, 3}}}, name);
    config.norm_eps = 1e-5F;
    config.tied_embeddings = true;
    for (const auto scaling :
         {RopeConfig::Scaling::none, RopeConfig::Scaling::linear, RopeConfig::Scaling::llama3}) {
      config.rope = {};
      config.rope.theta = 5e5;
      config.rope.scaling = scaling;
      if (scaling != RopeConfig::Scaling::none) {
        config.rope.factor = 8.0;
      }
      const ConfigTexts texts = format_config(config);
      EXPECT_EQ(parse_config(texts), config) << texts.config;
      EXPECT_THAT(texts.config, HasSubstr(name));
      EXPECT_THAT(texts.config, HasSubstr("\"rms_norm_eps\": 1e-05"));
    }
  }
}

TEST(Config, FormatRefusesWhatWouldNotReadBack) {
  ModelConfig config = parse(tiny_config());
  config.qk_norm = true;
  EXPECT_THAT(error_of([&] { format_config(config); }), HasSubstr("cannot be saved"));
  config = parse(tiny_config());
  config.dtype = DType::i8;
  EXPECT_THAT(error_of([&] { format_config(config); }), HasSubstr("int8"));
  config = parse(tiny_config());
  config.kv_heads = 3;
  EXPECT_THAT(error_of([&] { format_config(config); }), HasSubstr("num_key_value_heads"));
}

}  // namespace
}  // namespace winnow
