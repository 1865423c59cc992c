// Models from GGUF files.
#include <gmock/gmock.h>

#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/gguf_testing.h"
#include "model/checkpoint_testing.h"
#include "model/gguf_model.h"

namespace winnow::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint32_t kQ8 = 8;

class GgufModelTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path path() const { return dir_.path() / "m.gguf"; }
  void write(const gguf::GgufImage& image) { dir_.write("m.gguf", image.bytes()); }
  std::string error() {
    return error_of([&] { (void)Checkpoint::open(path()); });
  }

  TempDir dir_;
};

/// A description of the metadata below.
ModelSpec tiny(const std::string& family) {
  return parse_with({{"hidden_size", 32},
                     {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},
                     {"head_dim", 8},
                     {"intermediate_size", 64},
                     {"vocab_size", 32},
                     {"rope_theta", 5e5},
                     {"rms_norm_eps", 1e-5},
                     {"torch_dtype", "float32"},
                     {"bos_token_id", 1},
                     {"eos_token_id", {2, 3}}},
                    family);
}

gguf::GgufImage metadata_of(const std::string& architecture) {
  gguf::GgufImage image;
  const std::string at = architecture + ".";
  image.text("general.architecture", architecture);
  image.u32(at + "embedding_length", 32);
  image.u32(at + "block_count", 2);
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

/// Rows as llama.cpp's converter orders those of queries and keys: each channel beside its partner.
std::string interleaved(const TensorView& tensor, int heads) {
  const std::size_t row = tensor.bytes() / static_cast<std::size_t>(tensor.shape[0]);
  const std::int64_t head = tensor.shape[0] / heads;
  std::string out;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < head / 2; ++i) {
      for (const std::int64_t channel : {i, i + head / 2}) {
        out.append(reinterpret_cast<const char*>(tensor.data) +
                       static_cast<std::size_t>(h * head + channel) * row,
                   row);
      }
    }
  }
  return out;
}

/// All tensors in F32, as the converter writes them.
void add_tensors(gguf::GgufImage& image, const ModelSpec& spec, const TensorMap& tensors,
                 const std::string& but = "") {
  for (const auto& [name, tensor] : tensors) {
    std::string data(reinterpret_cast<const char*>(tensor.data), tensor.bytes());
    if (has_gguf_order(spec, name)) {
      data = interleaved(tensor, name.find("q_proj") != std::string::npos ? 4 : 2);
    }
    if (gguf_name(name) != but) {
      image.tensor(gguf_name(name), gguf::kF32, tensor.shape, data);
    }
  }
}

/// Numbers rather than random bits, so that they compare.
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

TEST_F(GgufModelTest, ReadsWhatTheConverterWrites) {
  for (const auto& [architecture, family] :
       {std::pair("llama", "LlamaForCausalLM"), std::pair("qwen2", "Qwen2ForCausalLM"),
        std::pair("qwen3", "Qwen3ForCausalLM")}) {
    SCOPED_TRACE(architecture);
    const ModelSpec spec = tiny(family);
    OwnedTensors tensors = numbers_of(spec);
    gguf::GgufImage image = metadata_of(architecture);
    add_tensors(image, spec, tensors.map());
    write(image);
    const Checkpoint opened = Checkpoint::open(path());
    EXPECT_EQ(opened.spec(), spec);
    expect_same_tensors(tensors.map(), opened.tensors());
  }
}

TEST_F(GgufModelTest, QuantisedTensorsBecomeBf16) {
  const ModelSpec spec = tiny("LlamaForCausalLM");
  OwnedTensors tensors = numbers_of(spec);
  gguf::GgufImage image = metadata_of("llama");
  add_tensors(image, spec, tensors.map(), "token_embd.weight");
  std::string blocks;
  for (int row = 0; row < 32; ++row) {
    blocks += std::string("\x00\x38", 2);  // 0.5
    for (int i = 0; i < 32; ++i) {
      blocks += static_cast<char>(row - i);
    }
  }
  image.tensor("token_embd.weight", kQ8, {32, 32}, blocks);
  write(image);
  const Checkpoint opened = Checkpoint::open(path());
  EXPECT_EQ(opened.spec().dtype, DType::bf16);
  const TensorView& embedding = opened.tensor("model.embed_tokens.weight");
  ASSERT_EQ(embedding.dtype, DType::bf16);
  for (int i = 0; i < 32 * 32; ++i) {
    const int expected = i / 32 - i % 32;  // halves
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
  add_tensors(missing, spec, tensors.map(), "blk.1.ffn_up.weight");
  write(missing);
  EXPECT_THAT(error(), HasSubstr("tensor \"model.layers.1.mlp.up_proj.weight\" is missing"));
  gguf::GgufImage extra = metadata_of("llama");
  add_tensors(extra, spec, tensors.map());
  extra.tensor("blk.0.attn_q.bias", gguf::kF32, {32}, std::string(128, '\1'));
  write(extra);
  EXPECT_THAT(error(), HasSubstr("tensor \"blk.0.attn_q.bias\" has no place"));
}

TEST_F(GgufModelTest, FrequenciesOfLlama3) {
  const ModelSpec spec = tiny("LlamaForCausalLM");
  OwnedTensors tensors = numbers_of(spec);
  const auto image_with = [&](const std::vector<float>& divisors) {
    gguf::GgufImage image = metadata_of("llama");
    add_tensors(image, spec, tensors.map());
    image.tensor("rope_freqs.weight", gguf::kF32, {static_cast<std::int64_t>(divisors.size())},
                 {reinterpret_cast<const char*>(divisors.data()), divisors.size() * 4});
    write(image);
  };
  // Heads of 8 have frequencies of 1, 0.038, 0.0014 and 0.00005: wavelengths 6, 167, 4443, 118143.
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
