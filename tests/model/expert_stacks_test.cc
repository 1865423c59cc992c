// Files with one tensor for all experts of a layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "model/checkpoint_testing.h"
#include "model/weights.h"

namespace winnow::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::int64_t kHidden = 16;
constexpr std::int64_t kInner = 24;
constexpr std::int64_t kExperts = 4;
const std::string kLayer = "model.layers.1.mlp.experts.";

ModelSpec spec_of(const std::string& architecture) {
  return parse_with({{"num_local_experts", kExperts},
                     {"num_experts_per_tok", 2},
                     {"moe_intermediate_size", kInner},
                     {"torch_dtype", "float32"}},
                    architecture);
}

// The bits of an element: noise may be NaN, which does not compare equal.
std::uint32_t at(const TensorView& tensor, std::int64_t index) {
  return tensor.as<std::uint32_t>()[static_cast<std::size_t>(index)];
}

// gpt-oss: [expert, in, out], with alternating columns of gate and up.
TEST(ExpertStacks, AreSavedAsTheFamilyHasThem) {
  const ModelSpec spec = spec_of("GptOssForCausalLM");
  const TempDir dir;
  OwnedTensors tensors = tensors_of(spec);
  save_checkpoint(dir.path(), spec, tensors.map());
  const SafetensorsFile file(dir.path() / "model.safetensors");
  const TensorView into = file.tensor(kLayer + "gate_up_proj");
  const TensorView into_bias = file.tensor(kLayer + "gate_up_proj_bias");
  const TensorView back = file.tensor(kLayer + "down_proj");
  const TensorView back_bias = file.tensor(kLayer + "down_proj_bias");
  EXPECT_EQ(into.shape, (Shape{kExperts, kHidden, 2 * kInner}));
  EXPECT_EQ(into_bias.shape, (Shape{kExperts, 2 * kInner}));
  EXPECT_EQ(back.shape, (Shape{kExperts, kInner, kHidden}));
  EXPECT_EQ(back_bias.shape, (Shape{kExperts, kHidden}));
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const auto part = [&](const char* name) {
      return tensors.map().at(kLayer + std::to_string(e) + "." + name);
    };
    for (std::int64_t i = 0; i < kInner; ++i) {
      for (std::int64_t h = 0; h < kHidden; ++h) {
        const std::int64_t pair = (e * kHidden + h) * 2 * kInner + 2 * i;
        ASSERT_EQ(at(into, pair), at(part("gate_proj.weight"), i * kHidden + h));
        ASSERT_EQ(at(into, pair + 1), at(part("up_proj.weight"), i * kHidden + h));
        ASSERT_EQ(at(back, (e * kInner + i) * kHidden + h),
                  at(part("down_proj.weight"), h * kInner + i));
      }
      EXPECT_EQ(at(into_bias, e * 2 * kInner + 2 * i), at(part("gate_proj.bias"), i));
      EXPECT_EQ(at(into_bias, e * 2 * kInner + 2 * i + 1), at(part("up_proj.bias"), i));
    }
    for (std::int64_t h = 0; h < kHidden; ++h) {
      EXPECT_EQ(at(back_bias, e * kHidden + h), at(part("down_proj.bias"), h));
    }
  }
  EXPECT_FALSE(file.holds(kLayer + "0.gate_proj.weight"));
  const Checkpoint opened = Checkpoint::open(dir.path());
  expect_same_tensors(opened.tensors(), tensors.map());
  opened.release(kLayer + "0.gate_proj.weight");
  expect_same_tensors(opened.tensors(), tensors.map());
}

// GPT-NeoX: q, k and v alternate head by head, and so do their biases.
TEST(HeadStacks, AreSavedAsTheFamilyHasThem) {
  const ModelSpec spec =
      parse_with({{"torch_dtype", "float32"}, {"rotary_pct", 0.5}}, "GPTNeoXForCausalLM");
  const AttentionSpec& attention = spec.attention();
  const TempDir dir;
  OwnedTensors tensors = tensors_of(spec);
  save_checkpoint(dir.path(), spec, tensors.map());
  const SafetensorsFile file(dir.path() / "model.safetensors");
  const std::string stored = "gpt_neox.layers.1.attention.query_key_value.";
  const TensorView weight = file.tensor(stored + "weight");
  const TensorView bias = file.tensor(stored + "bias");
  const std::int64_t dim = attention.head_dim;
  EXPECT_EQ(weight.shape, (Shape{3 * attention.heads * dim, spec.hidden}));
  std::int64_t row = 0;
  for (std::int64_t head = 0; head < attention.heads; ++head) {
    for (const std::string part : {"q_proj.", "k_proj.", "v_proj."}) {
      const std::string name = "model.layers.1.self_attn." + part;
      for (std::int64_t i = head * dim; i < (head + 1) * dim; ++i, ++row) {
        ASSERT_EQ(at(bias, row), at(tensors.map().at(name + "bias"), i));
        for (std::int64_t k = 0; k < spec.hidden; ++k) {
          ASSERT_EQ(at(weight, row * spec.hidden + k),
                    at(tensors.map().at(name + "weight"), i * spec.hidden + k));
        }
      }
    }
  }
  EXPECT_FALSE(file.holds("gpt_neox.layers.1.self_attn.q_proj.weight"));
  expect_same_tensors(Checkpoint::open(dir.path()).tensors(), tensors.map());
}

// A quantised query_key_value: its rows are those of q, k and v, head by head.
TEST(HeadStacks, MayBeQuantised) {
  json config = tiny_config("GPTNeoXForCausalLM");
  config.merge_patch({{"torch_dtype", "float32"}, {"rotary_pct", 0.5}});
  const ModelSpec spec = parse(config);
  const std::int64_t dim = spec.attention().head_dim;
  const TempDir dir;
  OwnedTensors tensors = tensors_of(spec);
  save_checkpoint(dir.path(), spec, tensors.map());
  const SafetensorsFile plain(dir.path() / "model.safetensors");
  OwnedTensors codes;
  const float scale = 0.5F;
  const std::string stack = "gpt_neox.layers.1.attention.query_key_value.";
  codes.add(stack + "weight", DType::f8e4m3, plain.tensor(stack + "weight").shape, 7);
  const TensorView whole = codes.map().at(stack + "weight");
  auto* bytes = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(whole.data));
  std::for_each_n(bytes, whole.count(), [](std::uint8_t& byte) { byte &= 0xBFU; });  // no NaN
  TensorMap quantised = plain.tensors();
  quantised[stack + "weight"] = whole;
  quantised[stack + "weight_scale"] = {DType::f32, {1}, reinterpret_cast<const std::byte*>(&scale)};
  const TempDir other;
  config["quantization_config"] = {{"quant_method", "fp8"}};
  other.write("config.json", config.dump());
  write_safetensors(other.path() / "model.safetensors", quantised, {{"format", "pt"}});
  const Checkpoint opened = Checkpoint::open(other.path());
  int place = 0;
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    const TensorView rows =
        opened.tensor(std::string("model.layers.1.self_attn.") + part + ".weight");
    for (std::int64_t row = 0; row < spec.attention().heads * dim; ++row) {
      const std::int64_t from = (row / dim * 3 + place) * dim + row % dim;
      for (std::int64_t k = 0; k < spec.hidden; ++k) {
        const auto code = whole.as<f8e4m3>()[static_cast<std::size_t>(from * spec.hidden + k)];
        ASSERT_EQ(rows.as<float>()[static_cast<std::size_t>(row * spec.hidden + k)],
                  scale * to_float(code));
      }
    }
    ++place;
  }
  EXPECT_EQ(0, std::memcmp(opened.tensor("model.layers.1.self_attn.k_proj.bias").data,
                           tensors.map().at("model.layers.1.self_attn.k_proj.bias").data,
                           static_cast<std::size_t>(4 * spec.attention().heads * dim)));
}

// DeepSeek: each head has a key part [key_dim, rank], then a value part [value_dim, rank].
ModelSpec latent_spec() {
  json config = tiny_config("DeepseekV3ForCausalLM");
  config.merge_patch({{"torch_dtype", "float32"},
                      {"kv_lora_rank", 12},
                      {"qk_nope_head_dim", 3},
                      {"qk_rope_head_dim", 4},
                      {"v_head_dim", 5},
                      {"first_k_dense_replace", 9}});
  config["q_lora_rank"] = nullptr;
  return parse(config);
}

// Calls check(index in kv_b_proj, name of the part, index in the part).
template <class Check>
void each_element_of_latents(const ModelSpec& spec, const Check& check) {
  const LatentSpec& latent = *spec.attention().latent;
  for (std::int64_t h = 0; h < spec.attention().heads; ++h) {
    const std::int64_t first = h * (latent.key_dim + latent.value_dim);
    for (std::int64_t r = 0; r < latent.rank; ++r) {
      for (std::int64_t i = 0; i < latent.key_dim; ++i) {
        check((first + i) * latent.rank + r, "k_b_proj.weight",
              (h * latent.rank + r) * latent.key_dim + i);
      }
      for (std::int64_t i = 0; i < latent.value_dim; ++i) {
        check((first + latent.key_dim + i) * latent.rank + r, "v_b_proj.weight",
              (h * latent.value_dim + i) * latent.rank + r);
      }
    }
  }
}

TEST(LatentStacks, AreSavedAsTheFamilyHasThem) {
  const ModelSpec spec = latent_spec();
  const TempDir dir;
  OwnedTensors tensors = tensors_of(spec);
  save_checkpoint(dir.path(), spec, tensors.map());
  const SafetensorsFile file(dir.path() / "model.safetensors");
  const std::string prefix = "model.layers.1.self_attn.";
  const TensorView whole = file.tensor(prefix + "kv_b_proj.weight");
  EXPECT_EQ(whole.shape, (Shape{spec.attention().heads * 8, 12}));
  each_element_of_latents(spec, [&](std::int64_t in_whole, const char* part, std::int64_t place) {
    ASSERT_EQ(at(whole, in_whole), at(tensors.map().at(prefix + part), place)) << part;
  });
  EXPECT_FALSE(file.holds(prefix + "k_b_proj.weight"));
  expect_same_tensors(Checkpoint::open(dir.path()).tensors(), tensors.map());
}

TEST(LatentStacks, MayBeQuantised) {
  const ModelSpec spec = latent_spec();
  const TempDir dir;
  OwnedTensors tensors = tensors_of(spec);
  save_checkpoint(dir.path(), spec, tensors.map());
  const SafetensorsFile plain(dir.path() / "model.safetensors");
  TensorMap quantised = plain.tensors();
  const std::string prefix = "model.layers.1.self_attn.";
  OwnedTensors codes;
  codes.add(prefix + "kv_b_proj.weight", DType::f8e4m3,
            plain.tensor(prefix + "kv_b_proj.weight").shape, 7);
  const TensorView whole = codes.map().at(prefix + "kv_b_proj.weight");
  auto* bytes = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(whole.data));
  std::for_each_n(bytes, whole.count(), [](std::uint8_t& byte) { byte &= 0xBFU; });  // no NaN
  const float scale = 0.5F;
  quantised[prefix + "kv_b_proj.weight"] = whole;
  quantised[prefix + "kv_b_proj.weight_scale"] = {
      DType::f32, {1}, reinterpret_cast<const std::byte*>(&scale)};
  const TempDir other;
  json config = json::parse(spec.config.text);
  config["quantization_config"] = {{"quant_method", "fp8"}};
  other.write("config.json", config.dump());
  write_safetensors(other.path() / "model.safetensors", quantised, {{"format", "pt"}});
  const Checkpoint opened = Checkpoint::open(other.path());
  each_element_of_latents(spec, [&](std::int64_t in_whole, const char* part, std::int64_t place) {
    const auto code = whole.as<f8e4m3>()[static_cast<std::size_t>(in_whole)];
    ASSERT_EQ(opened.tensor(prefix + part).as<float>()[static_cast<std::size_t>(place)],
              scale * to_float(code))
        << part;
  });
}

// transformers' own layout, [expert, out, in], of families whose files have a tensor per expert.
TEST(ExpertStacks, OfRowsAreReadWhereTheyLie) {
  const ModelSpec spec = spec_of("Qwen3MoeForCausalLM");
  const TempDir dir;
  OwnedTensors tensors = tensors_of(spec);
  save_checkpoint(dir.path(), spec, tensors.map());
  TensorMap stacked = tensors.map();
  OwnedTensors stacks;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    stacks.add(at + "gate_up_proj", DType::f32, {kExperts, 2 * kInner, kHidden}, 3);
    stacks.add(at + "down_proj", DType::f32, {kExperts, kHidden, kInner}, 4);
    for (int e = 0; e < kExperts; ++e) {
      for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
        stacked.erase(at + std::to_string(e) + "." + name + ".weight");
      }
    }
  }
  stacked.insert(stacks.map().begin(), stacks.map().end());
  write_safetensors(dir.path() / "model.safetensors", stacked, {{"format", "pt"}});
  const Checkpoint opened = Checkpoint::open(dir.path());
  const TensorView whole = stacks.map().at(kLayer + "gate_up_proj");
  const TensorView up = opened.tensor(kLayer + "2.up_proj.weight");
  for (std::int64_t i = 0; i < kInner * kHidden; ++i) {
    ASSERT_EQ(at(up, i), at(whole, (2 * 2 + 1) * kInner * kHidden + i));
  }
  EXPECT_EQ(opened.parameter_count(), Checkpoint::open(dir.path()).parameter_count());
}

// Qwen3-VL's experts as published: [expert, in, out], all columns of gate before those of up.
TEST(ExpertStacks, OfColumnsAreReadToo) {
  const ModelSpec spec = spec_of("Qwen3MoeForCausalLM");
  const TempDir dir;
  OwnedTensors tensors = tensors_of(spec);
  TensorMap stacked = tensors.map();
  OwnedTensors stacks;
  for (int layer = 0; layer < spec.layer_count(); ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    stacks.add(at + "gate_up_proj", DType::f32, {kExperts, kHidden, 2 * kInner}, 3);
    stacks.add(at + "down_proj", DType::f32, {kExperts, kInner, kHidden}, 4);
    std::erase_if(stacked, [&](const auto& tensor) { return tensor.first.starts_with(at); });
  }
  stacked.insert(stacks.map().begin(), stacks.map().end());
  save_checkpoint(dir.path(), spec, tensors.map());
  write_safetensors(dir.path() / "model.safetensors", stacked, {{"format", "pt"}});
  const Checkpoint opened = Checkpoint::open(dir.path());
  const TensorView up = opened.tensor(kLayer + "2.up_proj.weight");
  const TensorView down = opened.tensor(kLayer + "2.down_proj.weight");
  for (std::int64_t i = 0; i < kInner; ++i) {
    for (std::int64_t h = 0; h < kHidden; ++h) {
      ASSERT_EQ(at(up, i * kHidden + h), at(stacks.map().at(kLayer + "gate_up_proj"),
                                            (2 * kHidden + h) * 2 * kInner + kInner + i));
      ASSERT_EQ(at(down, h * kInner + i),
                at(stacks.map().at(kLayer + "down_proj"), (2 * kInner + i) * kHidden + h));
    }
  }
}

// gpt-oss as published: [expert, out, in] in blocks of 32, with alternating rows of gate and up.
TEST(ExpertStacks, InMxfp4) {
  constexpr std::int64_t kWide = 32;
  json config = tiny_config("GptOssForCausalLM");
  config.merge_patch({{"hidden_size", kWide},
                      {"intermediate_size", kWide},
                      {"num_local_experts", kExperts},
                      {"num_experts_per_tok", 2}});
  const ModelSpec spec = parse(config);
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  const TempDir dir;
  save_checkpoint(dir.path(), spec, tensors_of(spec).map());
  dir.write("config.json", config.dump());
  const SafetensorsFile plain(dir.path() / "model.safetensors");
  OwnedTensors stored;
  for (const auto& [name, tensor] : plain.tensors()) {
    const bool down = name.ends_with("experts.down_proj");
    if (down || name.ends_with("experts.gate_up_proj")) {
      const std::int64_t rows = down ? kWide : 2 * kWide;
      stored.add(name + "_blocks", DType::i8, {kExperts, rows, 1, 16}, 4);
      stored.add(name + "_scales", DType::i8, {kExperts, rows, 1}, 5);
    } else {
      stored.map()[name] = tensor;
    }
  }
  for (auto& [name, tensor] : stored.map()) {
    if (name.ends_with("_scales")) {
      auto* scales = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(tensor.data));
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        scales[i] = static_cast<std::uint8_t>(117 + scales[i] % 20);
      }
    }
  }
  const TempDir published;
  write_safetensors(published.path() / "model.safetensors", stored.map());
  std::string image = published.read("model.safetensors");
  for (std::size_t at = image.find("\"I8\""); at != std::string::npos;
       at = image.find("\"I8\"", at)) {
    image[at + 1] = 'U';  // a type that winnow does not write
  }
  published.write("model.safetensors", image);
  published.write("config.json", config.dump());

  const Checkpoint opened = Checkpoint::open(published.path());
  constexpr std::array<float, 8> kMagnitudes{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const auto value = [&](const std::string& stack, std::int64_t row, std::int64_t col) {
    const auto byte = [&](const char* part, std::int64_t index) {
      return std::to_integer<int>(stored.map().at(kLayer + stack + part).data[index]);
    };
    const int code = byte("_blocks", row * 16 + col / 2) >> (col % 2 * 4) & 15;
    const float magnitude = kMagnitudes[static_cast<std::size_t>(code & 7)];
    return std::ldexp(code > 7 ? -magnitude : magnitude, byte("_scales", row) - 127);
  };
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const auto expect = [&](const char* part, const char* stack, auto row_of) {
      const TensorView tensor = opened.tensor(kLayer + std::to_string(e) + "." + part + ".weight");
      for (std::int64_t i = 0; i < kWide * kWide; ++i) {
        ASSERT_EQ(to_float(tensor.as<bf16>()[static_cast<std::size_t>(i)]),
                  value(stack, row_of(i / kWide), i % kWide))
            << part << ' ' << e << ' ' << i;
      }
    };
    expect("gate_proj", "gate_up_proj", [&](auto r) { return e * 2 * kWide + 2 * r; });
    expect("up_proj", "gate_up_proj", [&](auto r) { return e * 2 * kWide + 2 * r + 1; });
    expect("down_proj", "down_proj", [&](auto r) { return e * kWide + r; });
  }
  // Loaded weights keep their 4 bits and scales.
  const Weights weights = load_weights(Checkpoint::open(published.path()));
  const ExpertWeights& expert = weights.layers[1].experts[2];
  const auto expect_weight = [&](const ops::Weight& weight, const char* part) {
    ASSERT_EQ(weight.format, ops::WeightFormat::mxfp4);
    const TensorView tensor = opened.tensor(kLayer + "2." + part + ".weight");
    std::vector<float> row(kWide);
    for (std::int64_t r = 0; r < kWide; ++r) {
      ops::dequantize_row(weight, r, row.data());
      for (std::int64_t c = 0; c < kWide; ++c) {
        ASSERT_EQ(row[static_cast<std::size_t>(c)],
                  to_float(tensor.as<bf16>()[static_cast<std::size_t>(r * kWide + c)]));
      }
    }
  };
  expect_weight(expert.gate, "gate_proj");
  expect_weight(expert.up, "up_proj");
  expect_weight(expert.down, "down_proj");
  EXPECT_EQ(0, std::memcmp(opened.tensor(kLayer + "1.down_proj.bias").data,
                           plain.tensor(kLayer + "down_proj_bias").data + kWide * 2, kWide * 2));
}

TEST(ExpertStacks, OfAnotherShapeAreNamed) {
  const ModelSpec spec = spec_of("GptOssForCausalLM");
  const TempDir dir;
  save_checkpoint(dir.path(), spec, tensors_of(spec).map());
  const SafetensorsFile file(dir.path() / "model.safetensors");
  TensorMap wrong = file.tensors();
  wrong.at(kLayer + "down_proj").shape = {kExperts, kHidden, kInner};
  const TempDir other;
  save_checkpoint(other.path(), spec, tensors_of(spec).map());
  write_safetensors(other.path() / "model.safetensors", wrong, {{"format", "pt"}});
  EXPECT_THAT(error_of([&] { Checkpoint::open(other.path()); }),
              HasSubstr("tensor \"" + kLayer +
                        "down_proj\" has shape [4, 16, 24], expected [4, "
                        "24, 16]"));
  wrong.erase(kLayer + "down_proj");
  write_safetensors(other.path() / "model.safetensors", wrong, {{"format", "pt"}});
  EXPECT_THAT(error_of([&] { Checkpoint::open(other.path()); }),
              HasSubstr(kLayer + "0.down_proj.weight\" is missing"));
}

}  // namespace
}  // namespace winnow::model
