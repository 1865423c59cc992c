// Models from GGUF files.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <vector>

#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/gguf_testing.h"
#include "model/checkpoint_testing.h"

namespace winnow::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::uint32_t kQ8 = 8;

class GgufModelTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path path() const { return dir_.path() / "m.gguf"; }
  void write(const gguf::GgufImage& image) { dir_.write("m.gguf", image.bytes()); }
  std::string error() {
    return error_of([&] { (void)Checkpoint::open(path()); });
  }

  TempDir dir_;
};

/// The model that the metadata below describes.
ModelSpec tiny(const std::string& family, const nlohmann::json& more = nullptr) {
  nlohmann::json config = {
      {"hidden_size", 32}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
      {"head_dim", 8},     {"intermediate_size", 64},  {"vocab_size", 32},
      {"rope_theta", 5e5}, {"rms_norm_eps", 1e-5},     {"torch_dtype", "float32"},
      {"bos_token_id", 1}, {"eos_token_id", {2, 3}}};
  if (more.is_object()) {
    config.merge_patch(more);
  }
  return parse_with(config, family);
}

gguf::GgufImage metadata_of(const std::string& architecture, std::uint32_t layers = 2) {
  gguf::GgufImage image;
  const std::string at = architecture + ".";
  image.text("general.architecture", architecture);
  image.u32(at + "embedding_length", 32);
  image.u32(at + "block_count", layers);
  image.u32(at + "feed_forward_length", 64);
  image.u32(at + "attention.head_count", 4);
  image.u32(at + "attention.head_count_kv", 2);
  image.u32(at + "attention.key_length", 8);
  image.u32(at + "context_length", 64);
  image.f32(at + "attention.layer_norm_rms_epsilon", 1e-5F);
  image.f32(at + "rope.freq_base", 5e5F);
  image.texts("tokenizer.ggml.tokens", std::vector<std::string>(32, "x"));
  image.u32("tokenizer.ggml.bos_token_id", 1);
  image.u32("tokenizer.ggml.eos_token_id", 2);
  image.u32("tokenizer.ggml.eot_token_id", 3);
  return image;
}

/// Orders rows of queries and keys as llama.cpp's converter does: channel i next to i + half.
std::string interleaved(const std::string& data, int heads, std::size_t rows) {
  const std::size_t row = data.size() / rows;
  const std::size_t head = rows / static_cast<std::size_t>(heads);
  std::string out;
  for (std::size_t h = 0; h < rows; h += head) {
    for (std::size_t i = 0; i < head / 2; ++i) {
      for (const std::size_t channel : {i, i + head / 2}) {
        out += data.substr((h + channel) * row, row);
      }
    }
  }
  return out;
}

bool is_one_of(const std::string& text, std::initializer_list<const char*> others) {
  return std::ranges::any_of(others, [&](const char* other) { return text == other; });
}

/// Imitates the converter: a model's tensors in F32, with the names that PyPI's gguf gives
/// them (make_gguf_names.py).
class Converted {
 public:
  Converted(const std::string& architecture, const ModelSpec& spec) : spec_(spec) {
    const auto all =
        nlohmann::json::parse(std::ifstream(WINNOW_SOURCE_DIR "/tests/model/gguf_names.json"));
    names_ = all.at(architecture).get<std::map<std::string, std::string>>();
  }

  void add(const std::string& name, const TensorView& tensor) {
    std::string data(reinterpret_cast<const char*>(tensor.data), tensor.bytes());
    if (is_one_of(spec_.family,
                  {"arcee", "granite", "llama", "ministral3", "mixtral", "smollm3"})) {
      const auto rows = static_cast<std::size_t>(tensor.shape.front());
      data = name.find("q_proj") != std::string::npos   ? interleaved(data, 4, rows)
             : name.find("k_proj") != std::string::npos ? interleaved(data, 2, rows)
                                                        : data;
    }
    if (spec_.family.starts_with("gemma") && name.ends_with("norm.weight")) {
      for (std::size_t at = 0; at < data.size(); at += sizeof(float)) {
        float value = 0.0F;
        std::memcpy(&value, &data[at], sizeof value);
        value += 1.0F;
        std::memcpy(&data[at], &value, sizeof value);
      }
    }
    append(name, tensor.shape, data);
  }

  void write(gguf::GgufImage& image, const std::string& but = "") const {
    for (const auto& [name, part] : parts_) {
      if (name != but) {
        image.tensor(name, gguf::kF32, part.shape, part.data);
      }
    }
  }

 private:
  struct Part {
    Shape shape;
    std::string data;
  };

  // Appends experts to one tensor; likewise q, k and v of Phi-3.
  void append(const std::string& name, Shape shape, const std::string& data) {
    std::smatch match;
    std::string whole = name;
    if (std::regex_match(name, match, std::regex(R"((.*experts)\.\d+(\..*))"))) {
      whole = match[1].str() + match[2].str();
      shape.insert(shape.begin(), 1);
    } else if (spec_.names.joins_qkv) {
      whole = std::regex_replace(whole, std::regex("\\.[qkv]_proj"), ".qkv_proj");
      whole = std::regex_replace(whole, std::regex("\\.(gate|up)_proj"), ".gate_up_proj");
    }
    const bool bare = whole.ends_with(".sinks");
    const std::size_t dot = bare ? whole.size() : whole.rfind('.');
    const std::string kind = bare ? ".weight" : whole.substr(dot);
    Part& part = parts_[names_.at(whole.substr(0, dot)) + kind];
    if (part.data.empty()) {
      part.shape = shape;
    } else {
      part.shape.front() += shape.front();
    }
    part.data += data;
    if (name.find("shared_expert_gate") != std::string::npos) {
      part.shape = {shape.back()};  // the converter drops dimensions of 1
    }
  }

  const ModelSpec& spec_;
  std::map<std::string, std::string> names_;
  std::map<std::string, Part> parts_;
};

/// Sorts tensors: experts by number, and q before k before v.
std::vector<std::string> in_order(const TensorMap& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    names.push_back(name);
  }
  const auto key = [](const std::string& name) {
    return std::pair(name.find("q_proj") != std::string::npos   ? 0
                     : name.find("k_proj") != std::string::npos ? 1
                                                                : 2,
                     name);
  };
  std::ranges::sort(names, {}, key);
  return names;
}

void add_tensors(gguf::GgufImage& image, const std::string& architecture, const ModelSpec& spec,
                 const TensorMap& tensors, const std::string& but = "") {
  Converted converted(architecture, spec);
  for (const std::string& name : in_order(tensors)) {
    converted.add(name, tensors.at(name));
  }
  converted.write(image, but);
}

/// Random numbers, not random bits, so that values compare.
OwnedTensors numbers_of(const ModelSpec& spec) {
  OwnedTensors tensors = tensors_of(spec);
  for (auto& [name, tensor] : tensors.map()) {
    auto* values = reinterpret_cast<float*>(const_cast<std::byte*>(tensor.data));
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
      values[i] = static_cast<float>(i % 97) + 0.5F;
    }
  }
  return tensors;
}

/// A model, and its keys in config.json and in the file besides those of tiny() and metadata_of().
struct ConvertedModel {
  std::string architecture;
  std::string family;
  nlohmann::json config = nullptr;
  std::function<void(gguf::GgufImage&)> add = [](gguf::GgufImage&) {};
};

const nlohmann::json kGptOssRope = {{"rope_type", "yarn"},
                                    {"factor", 8.0},
                                    {"truncate", false},
                                    {"original_max_position_embeddings", 16}};
const nlohmann::json kMinistral3Rope = {{"rope_type", "yarn"},
                                        {"rope_theta", 5e5},
                                        {"factor", 4.0},
                                        {"beta_fast", 32.0},
                                        {"beta_slow", 1.0},
                                        {"mscale", 1.0},
                                        {"mscale_all_dim", 1.0},
                                        {"llama_4_scaling_beta", 0.125},
                                        {"original_max_position_embeddings", 16}};
const std::vector<float> kLongFactors{1.0F, 2.0F, 3.0F, 4.0F};
const std::vector<float> kShortFactors{1.0F, 1.0F, 1.5F, 1.5F};

std::string bytes_of_floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

void add_experts(gguf::GgufImage& image, const std::string& architecture) {
  image.u32(architecture + ".expert_count", 4);
  image.u32(architecture + ".expert_used_count", 2);
}

std::vector<ConvertedModel> models() {
  const nlohmann::json experts = {{"num_local_experts", 4}, {"num_experts_per_tok", 2}};
  const nlohmann::json qwen_experts = {
      {"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 16}};
  const auto with = [](nlohmann::json json, const nlohmann::json& more) {
    json.merge_patch(more);
    return json;
  };
  return {
      {"llama", "LlamaForCausalLM"},
      {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"},
      {"smollm3", "SmolLM3ForCausalLM", {{"tie_word_embeddings", false}}},
      {"arcee", "ArceeForCausalLM"},
      {"gemma", "GemmaForCausalLM"},
      {"gemma2",
       "Gemma2ForCausalLM",
       {{"query_pre_attn_scalar", 8},
        {"attn_logit_softcapping", 20.0},
        {"final_logit_softcapping", 15.0},
        {"sliding_window", 16}},
       [](gguf::GgufImage& image) {
         image.f32("gemma2.attn_logit_softcapping", 20.0F);
         image.f32("gemma2.final_logit_softcapping", 15.0F);
         image.u32("gemma2.attention.sliding_window", 16);
       }},
      {"gemma3",
       "Gemma3ForCausalLM",
       {{"query_pre_attn_scalar", 8},
        {"sliding_window", 16},
        {"sliding_window_pattern", 2},
        {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}},
       [](gguf::GgufImage& image) {
         image.u32("gemma3.attention.sliding_window", 16);
         image.u32("gemma3.attention.sliding_window_pattern", 2);
         image.text("gemma3.rope.scaling.type", "linear");
         image.f32("gemma3.rope.scaling.factor", 8.0F);
       }},
      {"granite",
       "GraniteForCausalLM",
       {{"embedding_multiplier", 12.0},
        {"residual_multiplier", 0.25},
        {"logits_scaling", 8.0},
        {"attention_multiplier", 0.5}},
       [](gguf::GgufImage& image) {
         image.f32("granite.embedding_scale", 12.0F);
         image.f32("granite.residual_scale", 0.25F);
         image.f32("granite.logit_scale", 8.0F);
         image.f32("granite.attention.scale", 0.5F);
       }},
      {"qwen2vl", "Qwen2ForCausalLM", nullptr,
       [](gguf::GgufImage& image) {
         image.numbers<std::int32_t>("qwen2vl.rope.dimension_sections", 5, {1, 1, 2, 0});
       }},
      {"qwen3vl", "Qwen3ForCausalLM", nullptr,
       [](gguf::GgufImage& image) {
         image.numbers<std::int32_t>("qwen3vl.rope.dimension_sections", 5, {1, 1, 2, 0});
         image.u32("qwen3vl.n_deepstack_layers", 3);
       }},
      {"qwen3vlmoe", "Qwen3MoeForCausalLM", with(qwen_experts, {{"norm_topk_prob", true}}),
       [](gguf::GgufImage& image) {
         add_experts(image, "qwen3vlmoe");
         image.u32("qwen3vlmoe.expert_feed_forward_length", 16);
       }},
      {"seed_oss", "SeedOssForCausalLM"},
      {"exaone4", "Exaone4ForCausalLM", {{"sliding_window", nullptr}}},
      {"mistral3", "LlamaForCausalLM"},
      {"mistral3",
       "Ministral3ForCausalLM",
       {{"sliding_window", nullptr}, {"rope_theta", nullptr}, {"rope_parameters", kMinistral3Rope}},
       [](gguf::GgufImage& image) {
         image.text("mistral3.rope.scaling.type", "yarn");
         image.f32("mistral3.rope.scaling.factor", 4.0F);
         image.u32("mistral3.rope.scaling.original_context_length", 16);
         image.f32("mistral3.rope.scaling.yarn_beta_fast", 32.0F);
         image.f32("mistral3.rope.scaling.yarn_beta_slow", 1.0F);
         image.f32("mistral3.rope.scaling.yarn_log_multiplier", 1.0F);
         image.f32("mistral3.attention.temperature_scale", 0.125F);
       }},
      {"olmo2", "Olmo2ForCausalLM"},
      {"olmo2",
       "Olmo3ForCausalLM",
       {{"sliding_window", 16}, {"layer_types", {"full_attention", "sliding_attention"}}},
       [](gguf::GgufImage& image) {
         image.u32("olmo2.attention.sliding_window", 16);
         image.numbers<std::uint8_t>("olmo2.attention.sliding_window_pattern", 7, {0, 1});
       }},
      {"phi3",
       "Phi3ForCausalLM",
       {{"sliding_window", nullptr}, {"partial_rotary_factor", 0.5}},
       [](gguf::GgufImage& image) {
         image.u32("phi3.rope.dimension_count", 4);
         image.u32("phi3.attention.sliding_window", 0);
       }},
      {"phi3",
       "Phi3ForCausalLM",
       {{"sliding_window", 16},
        {"original_max_position_embeddings", 32},
        {"rope_scaling",
         {{"type", "longrope"}, {"long_factor", kLongFactors}, {"short_factor", kShortFactors}}}},
       [](gguf::GgufImage& image) {
         image.u32("phi3.rope.dimension_count", 8);
         image.u32("phi3.rope.scaling.original_context_length", 32);
         image.u32("phi3.attention.sliding_window", 16);
         image.tensor("rope_factors_long.weight", gguf::kF32, {4}, bytes_of_floats(kLongFactors));
         image.tensor("rope_factors_short.weight", gguf::kF32, {4}, bytes_of_floats(kShortFactors));
       }},
      {"llama", "MixtralForCausalLM", experts,
       [](gguf::GgufImage& image) { add_experts(image, "llama"); }},
      {"qwen2moe", "Qwen2MoeForCausalLM",
       with(qwen_experts, {{"shared_expert_intermediate_size", 24}}),
       [](gguf::GgufImage& image) {
         add_experts(image, "qwen2moe");
         image.u32("qwen2moe.expert_feed_forward_length", 16);
         image.u32("qwen2moe.expert_shared_feed_forward_length", 24);
       }},
      {"qwen3moe", "Qwen3MoeForCausalLM", with(qwen_experts, {{"norm_topk_prob", true}}),
       [](gguf::GgufImage& image) {
         add_experts(image, "qwen3moe");
         image.u32("qwen3moe.expert_feed_forward_length", 16);
       }},
      {"gpt-oss", "GptOssForCausalLM",
       with(experts, {{"sliding_window", 16}, {"rope_scaling", kGptOssRope}}),
       [](gguf::GgufImage& image) {
         add_experts(image, "gpt-oss");
         image.u32("gpt-oss.attention.sliding_window", 16);
         image.text("gpt-oss.rope.scaling.type", "yarn");
         image.f32("gpt-oss.rope.scaling.factor", 8.0F);
         image.u32("gpt-oss.rope.scaling.original_context_length", 16);
       }},
  };
}

TEST_F(GgufModelTest, ReadsWhatTheConverterWrites) {
  for (const ConvertedModel& model : models()) {
    SCOPED_TRACE(model.family);
    const ModelSpec spec = tiny(model.family, model.config);
    OwnedTensors tensors = numbers_of(spec);
    gguf::GgufImage image = metadata_of(model.architecture);
    model.add(image);
    add_tensors(image, model.architecture, spec, tensors.map());
    write(image);
    const Checkpoint opened = Checkpoint::open(path());
    EXPECT_EQ(opened.spec(), spec);
    expect_same_tensors(tensors.map(), opened.tensors());
  }
}

TEST_F(GgufModelTest, ThreeOfFourLayersOfTheLargeExaoneSlide) {
  const nlohmann::json large = {
      {"num_hidden_layers", 64}, {"sliding_window", 16}, {"tie_word_embeddings", true}};
  const ModelSpec spec = tiny("Exaone4ForCausalLM", large);
  EXPECT_EQ(spec.layer(2).attention()->reach.width, 16);
  EXPECT_FALSE(spec.layer(3).attention()->rope);
  gguf::GgufImage image = metadata_of("exaone4", 64);
  image.u32("exaone4.attention.sliding_window", 16);
  image.tensor("token_embd.weight", gguf::kF32, {32, 32}, std::string(32UL * 32 * 4, '\1'));
  write(image);
  EXPECT_EQ(read_spec(path()), spec);
}

TEST_F(GgufModelTest, QuantisedTensorsBecomeBf16) {
  const ModelSpec spec = tiny("LlamaForCausalLM");
  OwnedTensors tensors = numbers_of(spec);
  gguf::GgufImage image = metadata_of("llama");
  add_tensors(image, "llama", spec, tensors.map(), "token_embd.weight");
  std::string blocks;
  for (int row = 0; row < 32; ++row) {
    blocks += std::string("\x00\x38", 2);  // 0.5 in fp16
    for (int i = 0; i < 32; ++i) {
      blocks += static_cast<char>(row - i);
    }
  }
  image.tensor("token_embd.weight", kQ8, {32, 32}, blocks);
  write(image);
  const Checkpoint opened = Checkpoint::open(path());
  EXPECT_EQ(opened.spec().dtype, DType::bf16);
  // Rows of queries and keys have another order in the file, so loading converts them.
  constexpr std::size_t kTurned = 2 * (32 + 16) * 32;
  const StoredSizes sizes = opened.sizes();
  using Types = std::map<std::string, std::size_t>;
  EXPECT_EQ(sizes.quantized.types,
            (Types{{"F32", kTurned * sizeof(float)}, {"Q8_0", blocks.size()}}));
  const auto all = static_cast<std::size_t>(opened.parameter_count());
  EXPECT_EQ(sizes.types, (Types{{"F32", (all - 32 * 32) * sizeof(float)}, {"Q8_0", blocks.size()}}))
      << "those that are not converted, too";
  EXPECT_EQ(sizes.held, (32 * 32 + kTurned) * sizeof(bf16));
  ::testing::internal::CaptureStderr();
  const TensorView& embedding = opened.tensor("model.embed_tokens.weight");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("converts 1 matrices that GGUF quantised to bf16"))
      << "those in F32 are not quantised";
  ASSERT_EQ(embedding.dtype, DType::bf16);
  for (int i = 0; i < 32 * 32; ++i) {
    const int expected = i / 32 - i % 32;  // times 0.5
    ASSERT_EQ(to_float(embedding.as<bf16>()[static_cast<std::size_t>(i)]),
              0.5F * static_cast<float>(expected));
  }
}

TEST_F(GgufModelTest, WhatIsNotReadIsNamed) {
  gguf::GgufImage number;
  number.u32("general.architecture", 1);
  write(number);
  EXPECT_THAT(error(), HasSubstr("general.architecture: expected a text, got 1"));
  gguf::GgufImage other;
  other.text("general.architecture", "mamba");
  write(other);
  EXPECT_THAT(error(), AllOf(StartsWith(path().string()),
                             HasSubstr("architecture \"mamba\" is not supported in GGUF")));
  const ModelSpec spec = tiny("LlamaForCausalLM");
  OwnedTensors tensors = numbers_of(spec);
  gguf::GgufImage missing = metadata_of("llama");
  add_tensors(missing, "llama", spec, tensors.map(), "blk.1.ffn_up.weight");
  write(missing);
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.1.mlp.up_proj.weight\" is missing"));
  gguf::GgufImage extra = metadata_of("llama");
  add_tensors(extra, "llama", spec, tensors.map());
  extra.tensor("blk.0.attn_q.bias", gguf::kF32, {32}, std::string(128, '\1'));
  write(extra);
  EXPECT_THAT(error(), HasSubstr("tensor \"blk.0.attn_q.bias\" has no place"));
}

// As in Ollama's files of Gemma 3.
TEST_F(GgufModelTest, TheTextPartOfAModelThatSees) {
  const ModelSpec spec = tiny("LlamaForCausalLM");
  OwnedTensors tensors = numbers_of(spec);
  gguf::GgufImage image = metadata_of("llama");
  add_tensors(image, "llama", spec, tensors.map());
  write(image);
  const std::int64_t parameters = Checkpoint::open(path()).parameter_count();
  image.tensor("v.blk.0.attn_q.weight", gguf::kF32, {32}, std::string(128, '\1'));
  image.tensor("mm.mm_input_projection.weight", gguf::kF32, {32}, std::string(128, '\1'));
  write(image);
  EXPECT_EQ(Checkpoint::open(path()).parameter_count(), parameters);
}

TEST_F(GgufModelTest, SizesOfRecurrentLayersFitTogether) {
  gguf::GgufImage image = metadata_of("qwen35");
  image.u32("qwen35.ssm.conv_kernel", 4);
  image.u32("qwen35.ssm.group_count", 2);
  image.u32("qwen35.ssm.state_size", 8);
  image.u32("qwen35.ssm.time_step_rank", 4);
  image.u32("qwen35.ssm.inner_size", 30);
  image.tensor("token_embd.weight", gguf::kF32, {32, 32}, std::string(32UL * 32 * 4, '\1'));
  write(image);
  EXPECT_THAT(error(), HasSubstr("qwen35.ssm.inner_size: expected a multiple of "
                                 "ssm.time_step_rank, got 30 and 4"));
}

TEST_F(GgufModelTest, FrequenciesOfLlama3) {
  const ModelSpec spec = tiny("LlamaForCausalLM");
  OwnedTensors tensors = numbers_of(spec);
  const auto image_with = [&](const std::vector<float>& divisors) {
    gguf::GgufImage image = metadata_of("llama");
    add_tensors(image, "llama", spec, tensors.map());
    image.tensor("rope_freqs.weight", gguf::kF32, {static_cast<std::int64_t>(divisors.size())},
                 {reinterpret_cast<const char*>(divisors.data()), divisors.size() * 4});
    write(image);
  };
  // Frequencies of 8 channels are 1, 0.038, 0.0014, 0.00005: wavelengths 6, 167, 4443, 118143.
  const double context_over_wave = 8192.0 / (2 * M_PI / std::pow(5e5, -0.5));
  const double smooth = (context_over_wave - 1.0) / 3.0;
  const auto third = static_cast<float>(1.0 / ((1.0 - smooth) / 8.0 + smooth));
  image_with({1.0F, 1.0F, third, 8.0F});
  const RopeSpec rope = *Checkpoint::open(path()).spec().attention().rope;
  ASSERT_EQ(rope.frequencies.size(), 4U);
  EXPECT_FLOAT_EQ(rope.frequencies[0], 1.0F);
  EXPECT_FLOAT_EQ(rope.frequencies[3], static_cast<float>(std::pow(5e5, -0.75) / 8.0));
  image_with({1.0F, 2.0F, third, 8.0F});
  EXPECT_THAT(error(), HasSubstr("rope_freqs.weight: element 1 is 2, expected 1"));
}

}  // namespace
}  // namespace winnow::model
