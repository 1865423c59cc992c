// Models of text and images, loaded as their text parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint_testing.h"

namespace winnow::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json whole(const std::string& model_type, const std::string& architecture, json text) {
  return {{"architectures", {architecture}}, {"model_type", model_type},
          {"text_config", std::move(text)},  {"vision_config", {{"hidden_size", 7}}},
          {"torch_dtype", "float16"},        {"eos_token_id", 3}};
}

json text_of(const std::string& model_type) {
  json text = tiny_config();
  text.erase("architectures");
  text.erase("torch_dtype");
  text["rope_theta"] = 1e4;
  text["rms_norm_eps"] = 1e-6;
  text["model_type"] = model_type;
  return text;
}

TEST(TextPart, IsAModelOfItsFamily) {
  const ModelSpec gemma =
      parse(whole("gemma3", "Gemma3ForConditionalGeneration", text_of("gemma3_text")));
  EXPECT_EQ(gemma.family, "gemma3_text");
  EXPECT_EQ(gemma.dtype, DType::f16);
  EXPECT_THAT(gemma.eos_tokens, ::testing::ElementsAre(3));
  EXPECT_TRUE(gemma.tied_embeddings);
  EXPECT_EQ(parse(whole("mistral3", "Mistral3ForConditionalGeneration", text_of("mistral"))).family,
            "mistral");
  EXPECT_EQ(
      parse(whole("qwen3_vl", "Qwen3VLForConditionalGeneration", text_of("qwen3_vl_text"))).family,
      "qwen3");
}

TEST(TextPart, OfAnyClassIsReadWhereItIsOfAFamily) {
  const auto family_of = [](const std::string& architecture, const std::string& text) {
    return parse(whole("some_type", architecture, text_of(text))).family;
  };
  EXPECT_EQ(family_of("LlavaNextForConditionalGeneration", "mistral"), "mistral");
  EXPECT_EQ(family_of("InternVLForConditionalGeneration", "qwen3"), "qwen3");
  EXPECT_EQ(family_of("SmolVLMForConditionalGeneration", "llama"), "llama");
  EXPECT_EQ(family_of("AyaVisionForConditionalGeneration", "cohere2"), "cohere2");
  EXPECT_EQ(family_of("Lfm2VlForConditionalGeneration", "lfm2"), "lfm2");
  EXPECT_EQ(family_of("Glm4vForConditionalGeneration", "glm4v_text"), "glm4");
  EXPECT_EQ(family_of("OfTomorrowForConditionalGeneration", "qwen2"), "qwen2");
  EXPECT_THROW(family_of("OfTomorrowForConditionalGeneration", "of_tomorrow"), Error);
  for (const char* key : {"rope_theta", "rms_norm_eps"}) {  // the class may have its own default
    json text = text_of("llama");
    text.erase(key);
    EXPECT_THROW(parse(whole("some_type", "OfTomorrowForConditionalGeneration", text)), Error);
  }
  json two_parts = whole("some_type", "OfTomorrowForConditionalGeneration", text_of("llama"));
  two_parts["is_encoder_decoder"] = true;
  EXPECT_THROW(parse(two_parts), Error);
}

TEST(TextPart, OfAKnownClassIsALeftover) {
  json plain = tiny_config();
  const ModelSpec expected = parse(plain);
  plain["text_config"] = text_of("llama");
  plain["text_config"]["rope_theta"] = 5.0;
  plain["text_config"]["num_hidden_layers"] = expected.layer_count() + 1;
  EXPECT_EQ(parse(plain).layer_count(), expected.layer_count());
  plain.erase("architectures");
  plain["model_type"] = "llama";
  EXPECT_EQ(parse(plain).layer_count(), expected.layer_count());
}

TEST(TextPart, OfAClassifierIsRefused) {
  for (const char* name : {"Gemma3ForSequenceClassification", "OfTomorrowModel"}) {
    EXPECT_THROW(parse(whole("some_type", name, text_of("llama"))), Error) << name;
  }
}

TEST(TextPart, HasTheRetrofitOfTheWhole) {
  json config = whole("some_type", "OfTomorrowForConditionalGeneration", text_of("llama"));
  config["dms_window_size"] = 16;
  config["dms_alpha_scale"] = 10.0;
  EXPECT_TRUE(parse(config).dms.has_value());
  config["architectures"] = {"OfTomorrowForConditionalGenerationDMS"};
  EXPECT_THROW(parse(config), Error);
}

TEST(TextPart, OfAnUnknownClassTiesItsHeadAsItsFamilyDoes) {
  const auto ties = [](const std::string& text) {
    return parse(whole("some_type", "OfTomorrowForConditionalGeneration", text_of(text)))
        .tied_embeddings;
  };
  EXPECT_TRUE(ties("smollm3"));
  EXPECT_FALSE(ties("llama"));
}

TEST(TextPart, NamesAKeyOfTheWrongType) {
  json text = text_of("glm4v_text");
  text["num_attention_heads"] = "x";
  try {
    parse(whole("glm4v", "Glm4vForConditionalGeneration", text));
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("num_attention_heads"));
  }
}

TEST(TextPart, TiesItsHeadAsTheClassOfTheWholeDoes) {
  const auto ties = [](const std::string& architecture, const std::string& text) {
    return parse(whole("some_type", architecture, text_of(text))).tied_embeddings;
  };
  EXPECT_TRUE(ties("InternVLForConditionalGeneration", "qwen2"));
  EXPECT_TRUE(ties("PaliGemmaForConditionalGeneration", "gemma"));
  EXPECT_FALSE(ties("LlavaNextForConditionalGeneration", "llama"));
}

// transformers' classes of these models do not apply the logit factor of the text part's own
// class.
TEST(TextPart, MayHaveLogitsWithoutItsFactor) {
  json text = text_of("cohere2");
  text["logit_scale"] = 0.5;
  EXPECT_EQ(parse(whole("aya_vision", "AyaVisionForConditionalGeneration", text)).logit_multiplier,
            1.0F);
  text = text_of("granite");
  text["logits_scaling"] = 8.0;
  EXPECT_EQ(parse(whole("llava_next", "LlavaNextForConditionalGeneration", text)).logit_multiplier,
            1.0F);
}

TEST(TextPart, IgnoresKeysThatItsClassIgnores) {
  json text = text_of("glm4v_text");
  text["attention_bias"] = false;
  text["head_dim"] = 6;
  const ModelSpec glm = parse(whole("glm4v", "Glm4vForConditionalGeneration", text));
  EXPECT_TRUE(glm.attention().qkv_bias);
  EXPECT_EQ(glm.attention().head_dim, glm.hidden / glm.attention().heads);
  text = text_of("qwen3_vl_moe_text");
  text["norm_topk_prob"] = false;
  const ModelSpec qwen = parse(whole("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", text));
  EXPECT_TRUE(qwen.experts()->experts->normalized);
}

TEST(TextPart, LeavesOutWhatEqualsTheClassesDefaults) {
  const ModelSpec gemma = parse(whole("gemma3", "Gemma3ForConditionalGeneration",
                                      {{"hidden_size", 2560},
                                       {"intermediate_size", 10240},
                                       {"model_type", "gemma3_text"},
                                       {"num_hidden_layers", 34},
                                       {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                                       {"sliding_window", 1024}}));
  EXPECT_EQ(gemma.vocab, 262208);
  EXPECT_EQ(gemma.attention().heads, 8);
  EXPECT_EQ(gemma.attention().kv_heads, 4);
  EXPECT_EQ(gemma.attention().head_dim, 256);
  EXPECT_EQ(gemma.layer(5).attention()->rope->frequencies[0], 0.125F);
  EXPECT_EQ(gemma.layer(0).attention()->rope->frequencies[0], 1.0F);
}

// Qwen2.5-VL as published: the text part's keys are outside "text_config".
TEST(TextPart, MayHaveItsKeysBesideThoseOfTheWhole) {
  json config = tiny_config("Qwen2_5_VLForConditionalGeneration");
  config["model_type"] = "qwen2_5_vl";
  config["vision_config"] = {{"hidden_size", 7}};
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1}}};
  config["tie_word_embeddings"] = true;
  const ModelSpec spec = parse(config);
  EXPECT_EQ(spec.family, "qwen2");
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_EQ(spec.attention().rope->frequencies, (std::vector{1.0F, 1e-3F}));
}

TEST(TextPart, IsSavedAsTheModelThatItIs) {
  const ModelSpec spec =
      parse(whole("qwen3_vl", "Qwen3VLForConditionalGeneration", text_of("qwen3_vl_text")));
  const json saved = json::parse(format_spec(spec).config);
  EXPECT_EQ(saved["architectures"], json({"Qwen3ForCausalLM"}));
  EXPECT_EQ(saved["model_type"], "qwen3");
  EXPECT_FALSE(saved.contains("text_config") || saved.contains("vision_config"));
}

// As Ministral 3 and Qwen3-VL are published: fp8 matrices with one scale each.
TEST(TextPart, MayBeQuantised) {
  constexpr const char* kUp = "model.layers.1.mlp.up_proj.weight";
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    SCOPED_TRACE(prefix);
    json config = whole("mistral3", "Mistral3ForConditionalGeneration", text_of("mistral"));
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", nullptr}};
    OwnedTensors own = tensors_of(parse(config));
    OwnedTensors codes;
    codes.add(kUp, DType::f8e4m3, {24, 16}, 3);
    own.map()[kUp] = codes.map()[kUp];
    const float scale = 0.25F;
    own.map()[std::string(kUp) + "_scale_inv"] = {
        DType::f32, {}, reinterpret_cast<const std::byte*>(&scale)};
    TensorMap stored;
    for (const auto& [name, tensor] : own.map()) {
      stored[name.starts_with("model.") ? prefix + name.substr(6) : name] = tensor;
    }
    const TempDir dir;
    dir.write("config.json", config.dump());
    write_safetensors(dir.path() / "model.safetensors", stored);
    const Checkpoint opened = Checkpoint::open(dir.path());
    EXPECT_TRUE(opened.is_converted(kUp));
    const auto values = opened.tensor(kUp).as<f16>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = to_float(own.map()[kUp].as<f8e4m3>()[i]) * scale;
      EXPECT_TRUE(to_float(values[i]) == expected || std::isnan(expected)) << i;
    }
  }
}

TEST(TextPart, OfAnUnknownFamilyIsRefusedByName) {
  EXPECT_THAT(
      error_of([] { parse(whole("llava", "LlavaForConditionalGeneration", text_of("palm"))); }),
      HasSubstr("architecture \"palm\" is not supported"));
}

}  // namespace
}  // namespace winnow::model
