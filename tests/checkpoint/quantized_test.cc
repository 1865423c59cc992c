// Quantised matrices in the formats of published checkpoints. Each test draws codes and scales,
// packs them as the format specifies, and expects the values that they represent.
#include <gmock/gmock.h>

#include <cmath>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/quantized/method.h"

namespace winnow::quantized {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRows = 64;
constexpr int kCols = 96;
constexpr const char* kModule = "model.layers.3.mlp.up_proj";

/// Stores the parts of one matrix, and compares its values.
class QuantizedTest : public testing::Test {
 protected:
  template <class T>
  void store(const std::string& part, const std::string& type, const Shape& shape,
             const std::vector<T>& values) {
    std::string& bytes = memory_.emplace_back(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    tensors_[kModule + std::string(part.starts_with('_') ? "" : ".") + part] = {
        type, shape, reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
  }
  StoredTensor& stored(const std::string& part) {
    return tensors_.at(std::string(kModule) + "." + part);
  }
  void forget(const std::string& part) { tensors_.erase(std::string(kModule) + "." + part); }

  std::optional<QuantizedMatrix> find(const json& config) {
    const FindTensor find_tensor = [this](const std::string& name) {
      const auto found = tensors_.find(name);
      return found == tensors_.end() ? std::nullopt : std::optional(found->second);
    };
    const JsonObject object(config, "dir/config.json: quantization_config");
    return read_method(object)->find(Parts(find_tensor, "dir", kModule, kRows, kCols));
  }
  std::string error(const json& config) {
    return error_of([&] { (void)find(config); });
  }
  /// Expects value(row, column), bit for bit, in each of the types.
  template <class Value>
  void expect_values(const json& config, const Value& value) {
    const auto matrix = find(config);
    ASSERT_TRUE(matrix.has_value());
    const auto floats = dequantized(*matrix, DType::f32);
    const auto halves = dequantized(*matrix, DType::bf16);
    const auto* f = reinterpret_cast<const float*>(floats.data());
    const auto* h = reinterpret_cast<const bf16*>(halves.data());
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols; ++c) {
        const float expected = value(r, c);
        ASSERT_EQ(f[r * kCols + c], expected) << r << ", " << c;
        ASSERT_EQ(h[r * kCols + c].bits, to_bf16(expected).bits) << r << ", " << c;
      }
    }
  }

  /// `count` random integers in [0, limit).
  std::vector<int> integers(int count, int limit) {
    std::vector<int> values;
    for (int i = 0; i < count; ++i) {
      values.push_back(static_cast<int>(random_.bits() % static_cast<unsigned>(limit)));
    }
    return values;
  }
  std::vector<float> floats(int count) {
    std::vector<float> values;
    for (const int i : integers(count, 1000)) {
      values.push_back(0.001F * static_cast<float>(i + 1));
    }
    return values;
  }
  static std::vector<f16> halves(const std::vector<float>& values) {
    std::vector<f16> out;
    for (const float value : values) {
      out.push_back(to_f16(value));
    }
    return out;
  }

 private:
  Random random_{7, 0};
  std::deque<std::string> memory_;
  std::map<std::string, StoredTensor> tensors_;
};

/// Packs fields of `bits` bits into 32-bit words without gaps, the first in the lowest bits.
std::vector<std::uint32_t> packed(const std::vector<int>& fields, int bits) {
  std::vector<std::uint32_t> words((fields.size() * static_cast<std::size_t>(bits) + 31) / 32);
  std::size_t at = 0;
  for (const int field : fields) {
    for (int bit = 0; bit < bits; ++bit, ++at) {
      words[at / 32] |= ((static_cast<unsigned>(field) >> bit) & 1U) << (at % 32);
    }
  }
  return words;
}

/// The values at(0), at(1), ...
template <class At>
std::vector<int> line(int count, const At& at) {
  std::vector<int> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(at(i));
  }
  return values;
}

template <class T>
void append(std::vector<T>& out, const std::vector<T>& more) {
  out.insert(out.end(), more.begin(), more.end());
}

std::uint8_t fp8_code(int i) {  // all except the two NaN
  return static_cast<std::uint8_t>(i % 127 + (i / 127 % 2) * 128);
}

class Fp8Test : public QuantizedTest {
 protected:
  void SetUp() override {
    for (const int i : integers(kRows * kCols, 254)) {
      codes_.push_back(fp8_code(i));
    }
    store("weight", "F8_E4M3", {kRows, kCols}, codes_);
  }
  [[nodiscard]] float code(int r, int c) const {
    return to_float(f8e4m3{codes_[static_cast<std::size_t>(r * kCols + c)]});
  }
  std::vector<std::uint8_t> codes_;
};

TEST_F(Fp8Test, BlocksThatDoNotDivideTheMatrix) {
  const std::vector<float> scales = floats(2 * 3);  // 64 x 96 in blocks of 32 x 40
  store("weight_scale_inv", "F32", {2, 3}, scales);
  expect_values({{"quant_method", "fp8"}, {"weight_block_size", {32, 40}}}, [&](int r, int c) {
    return code(r, c) * scales[static_cast<std::size_t>(r / 32 * 3 + c / 40)];
  });
}

TEST_F(Fp8Test, ScalesPerTensorAndPerRow) {
  store("weight_scale_inv", "F32", {}, std::vector<float>{0.25F});
  expect_values({{"quant_method", "fp8"}, {"weight_block_size", nullptr}},
                [&](int r, int c) { return code(r, c) * 0.25F; });
  forget("weight_scale_inv");
  store("weight_scale", "BF16", {1}, std::vector<bf16>{to_bf16(0.3F)});
  expect_values({{"quant_method", "fp8"}},
                [&](int r, int c) { return code(r, c) * to_float(to_bf16(0.3F)); });
  const std::vector<float> scales = floats(kRows);
  store("weight_scale", "F32", {kRows, 1}, scales);
  expect_values({{"quant_method", "fbgemm_fp8"}},
                [&](int r, int c) { return code(r, c) * scales[static_cast<std::size_t>(r)]; });
}

TEST_F(Fp8Test, ScalesThatArePowersOfTwo) {
  std::vector<std::uint8_t> exponents;
  for (const int i : integers(4 * 3, 20)) {
    exponents.push_back(static_cast<std::uint8_t>(117 + i));
  }
  store("weight_scale_inv", "F8_E8M0", {4, 3}, exponents);
  expect_values({{"quant_method", "fp8"}, {"weight_block_size", {16, 32}}}, [&](int r, int c) {
    return std::ldexp(code(r, c), exponents[static_cast<std::size_t>(r / 16 * 3 + c / 32)] - 127);
  });
}

TEST_F(Fp8Test, ErrorsNameTheTensor) {
  const json blocks = {{"quant_method", "fp8"}, {"weight_block_size", {32, 32}}};
  EXPECT_THAT(error(blocks), AllOf(HasSubstr(kModule), HasSubstr("weight_scale\" is missing")));
  store("weight_scale_inv", "F32", {2, 2}, floats(4));
  EXPECT_THAT(error(blocks), HasSubstr("weight_scale_inv\" has shape [2, 2], expected [2, 3]"));
  stored("weight").shape = {kCols, kRows};
  EXPECT_THAT(error(blocks), HasSubstr("weight\" has shape [96, 64], expected [64, 96]"));
  EXPECT_THAT(error({{"quant_method", "fp8"}, {"weight_block_size", 128}}),
              HasSubstr("weight_block_size: expected two sizes, got 128"));
}

TEST_F(Fp8Test, AMatrixInFloatingPointIsLeftAlone) {
  store("weight", "BF16", {kRows, kCols}, std::vector<bf16>(kRows * kCols));
  EXPECT_FALSE(find({{"quant_method", "fp8"}}).has_value());
}

/// A compressed-tensors configuration with one group of layers.
json compressed(const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
          {"ignore", {"lm_head"}}};
}

TEST_F(Fp8Test, CompressedTensorsPerTensorChannelAndBlock) {
  store("weight_scale", "F32", {1}, std::vector<float>{0.5F});
  json weights = {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}};
  expect_values(compressed(weights), [&](int r, int c) { return code(r, c) * 0.5F; });

  const std::vector<float> scales = floats(kRows);
  store("weight_scale", "F32", {kRows, 1}, scales);
  weights["strategy"] = "channel";
  expect_values(compressed(weights),
                [&](int r, int c) { return code(r, c) * scales[static_cast<std::size_t>(r)]; });

  const std::vector<float> blocks = floats(2 * 3);
  store("weight_scale", "F32", {2, 3}, blocks);
  weights["strategy"] = "block";
  weights["block_structure"] = {32, 40};
  expect_values(compressed(weights), [&](int r, int c) {
    return code(r, c) * blocks[static_cast<std::size_t>(r / 32 * 3 + c / 40)];
  });
}

class IntegersTest : public QuantizedTest {
 protected:
  /// Draws a code for every weight, and a scale and a zero for every `group` columns of a row.
  void draw(int bits, int group) {
    codes_ = integers(kRows * kCols, 1 << bits);
    groups_ = kCols / group;
    group_ = group;
    scales_ = floats(kRows * groups_);
    for (float& scale : scales_) {
      scale = to_float(to_f16(scale));
    }
    zeros_ = integers(kRows * groups_, (1 << bits) - 1);
  }
  [[nodiscard]] int code(int r, int c) const {
    return codes_[static_cast<std::size_t>(r * kCols + c)];
  }
  [[nodiscard]] std::size_t at(int r, int c) const {
    return static_cast<std::size_t>(r * groups_ + c / group_);
  }
  [[nodiscard]] float value(int r, int c, int zero) const {
    return static_cast<float>(code(r, c) - zero) * scales_[at(r, c)];
  }

  std::vector<int> codes_, zeros_;
  std::vector<float> scales_;
  int groups_ = 0;
  int group_ = 0;
};

TEST_F(IntegersTest, CompressedTensorsPacked) {
  for (const int bits : {2, 3, 4, 5, 8}) {
    draw(bits, 32);
    std::vector<std::uint32_t> words;
    for (int r = 0; r < kRows; ++r) {
      append(words, packed(line(kCols, [&](int c) { return code(r, c); }), bits));
    }
    store("weight_packed", "I32", {kRows, kCols * bits / 32}, words);
    store("weight_scale", "F16", {kRows, groups_}, halves(scales_));
    json weights = {{"num_bits", bits}, {"group_size", 32}, {"strategy", "group"}};
    expect_values(compressed(weights), [&](int r, int c) { return value(r, c, 1 << (bits - 1)); });

    // Zeros are packed along the rows.
    const int zero_words = (kRows * bits + 31) / 32;
    std::vector<std::uint32_t> zeros(static_cast<std::size_t>(zero_words * groups_));
    for (int g = 0; g < groups_; ++g) {
      const auto column =
          packed(line(kRows, [&](int r) { return zeros_[at(r, g * group_)]; }), bits);
      for (int i = 0; i < zero_words; ++i) {
        zeros[static_cast<std::size_t>(i * groups_ + g)] = column[static_cast<std::size_t>(i)];
      }
    }
    store("weight_zero_point", "I32", {zero_words, groups_}, zeros);
    weights["symmetric"] = false;
    expect_values(compressed(weights), [&](int r, int c) { return value(r, c, zeros_[at(r, c)]); });
  }
}

TEST_F(IntegersTest, CompressedTensorsInOrderOfActivations) {
  draw(4, 24);
  std::vector<std::uint32_t> words;
  for (int r = 0; r < kRows; ++r) {
    append(words, packed(line(kCols, [&](int c) { return code(r, c); }), 4));
  }
  const std::vector<int> group_of = integers(kCols, groups_);
  store("weight_packed", "I32", {kRows, kCols / 8}, words);
  store("weight_scale", "F16", {kRows, groups_}, halves(scales_));
  store("weight_g_idx", "I32", {kCols}, group_of);
  const json config = compressed(
      {{"num_bits", 4}, {"group_size", 24}, {"strategy", "group"}, {"actorder", "group"}});
  expect_values(config, [&](int r, int c) {
    const int group = group_of[static_cast<std::size_t>(c)];
    return static_cast<float>(code(r, c) - 8) *
           scales_[static_cast<std::size_t>(r * groups_ + group)];
  });
  store("weight_g_idx", "I32", {kCols}, std::vector<int>(kCols, groups_));
  EXPECT_THAT(error(config), HasSubstr("weight_g_idx\" names groups beyond 4"));
}

TEST_F(IntegersTest, CompressedTensorsBytes) {
  draw(8, kCols);
  std::vector<std::int8_t> bytes;
  for (const int code : codes_) {
    bytes.push_back(static_cast<std::int8_t>(code - 128));
  }
  store("weight", "I8", {kRows, kCols}, bytes);
  store("weight_scale", "F16", {kRows, 1}, halves(scales_));
  expect_values(compressed({{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}),
                [&](int r, int c) { return value(r, c, 128); });
}

TEST_F(IntegersTest, GroupsOfLayersByName) {
  draw(4, 32);
  std::vector<std::uint32_t> words;
  for (int r = 0; r < kRows; ++r) {
    append(words, packed(line(kCols, [&](int c) { return code(r, c); }), 4));
  }
  store("weight_packed", "I32", {kRows, kCols / 8}, words);
  store("weight_scale", "F16", {kRows, groups_}, halves(scales_));
  const auto config = [](const json& targets) {
    json result = compressed({{"num_bits", 8}, {"strategy", "channel"}});
    result["config_groups"]["group_1"] = {{"targets", targets},
                                          {"weights", {{"num_bits", 4}, {"group_size", 32}}}};
    return result;
  };
  const auto expected = [&](int r, int c) { return value(r, c, 8); };
  expect_values(config({"re:.*mlp\\.(up|gate)_proj$"}), expected);
  expect_values(config({kModule}), expected);
  EXPECT_THAT(error(config({"re:.*self_attn.*"})), HasSubstr("weight_packed\" has shape"));
}

TEST_F(IntegersTest, GptqPlainAndInOrderOfActivations) {
  for (const int bits : {2, 3, 4, 8}) {
    draw(bits, 32);
    std::vector<std::uint32_t> words(static_cast<std::size_t>(kCols * bits / 32 * kRows));
    for (int r = 0; r < kRows; ++r) {  // packed along the inputs
      const auto column = packed(line(kCols, [&](int c) { return code(r, c); }), bits);
      for (std::size_t i = 0; i < column.size(); ++i) {
        words[i * kRows + static_cast<std::size_t>(r)] = column[i];
      }
    }
    std::vector<float> scales;
    std::vector<std::uint32_t> zeros;
    for (int g = 0; g < groups_; ++g) {
      for (int r = 0; r < kRows; ++r) {
        scales.push_back(scales_[at(r, g * group_)]);
      }
      append(zeros, packed(line(kRows, [&](int r) { return zeros_[at(r, g * group_)]; }), bits));
    }
    store("qweight", "I32", {kCols * bits / 32, kRows}, words);
    store("scales", "F16", {groups_, kRows}, halves(scales));
    store("qzeros", "I32", {groups_, kRows * bits / 32}, zeros);
    json config = {{"quant_method", "gptq"}, {"bits", bits}, {"group_size", 32}};
    forget("g_idx");
    expect_values(config, [&](int r, int c) { return value(r, c, zeros_[at(r, c)] + 1); });
    config["checkpoint_format"] = "gptq_v2";
    expect_values(config, [&](int r, int c) { return value(r, c, zeros_[at(r, c)]); });
    for (const char* format : {"auto_round", "auto_round:gptqmodel", "auto_round:auto_gptq"}) {
      const int less = format == std::string("auto_round:auto_gptq") ? 1 : 0;
      expect_values({{"quant_method", "auto-round"}, {"bits", bits}, {"packing_format", format}},
                    [&](int r, int c) { return value(r, c, zeros_[at(r, c)] + less); });
    }

    const std::vector<int> group_of = integers(kCols, groups_);
    store("g_idx", "I32", {kCols}, group_of);
    config["desc_act"] = true;
    expect_values(config, [&](int r, int c) {
      const auto i = static_cast<std::size_t>(r * groups_ + group_of[static_cast<std::size_t>(c)]);
      return static_cast<float>(code(r, c) - zeros_[i]) * scales_[i];
    });
  }
}

TEST_F(IntegersTest, Awq) {
  draw(4, 32);
  constexpr std::array<int, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};  // outputs of a word's fields
  const auto words_of = [&](const auto& value_of) {
    std::vector<int> fields;
    for (int first = 0; first < kRows; first += 8) {
      for (const int r : kOrder) {
        fields.push_back(value_of(first + r));
      }
    }
    return packed(fields, 4);
  };
  std::vector<std::uint32_t> words;
  for (int c = 0; c < kCols; ++c) {
    append(words, words_of([&](int r) { return code(r, c); }));
  }
  std::vector<float> scales;
  std::vector<std::uint32_t> zeros;
  for (int g = 0; g < groups_; ++g) {
    append(zeros, words_of([&](int r) { return zeros_[at(r, g * group_)]; }));
    for (int r = 0; r < kRows; ++r) {
      scales.push_back(scales_[at(r, g * group_)]);
    }
  }
  store("qweight", "I32", {kCols, kRows / 8}, words);
  store("qzeros", "I32", {groups_, kRows / 8}, zeros);
  store("scales", "F16", {groups_, kRows}, halves(scales));
  const json config = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}};
  expect_values(config, [&](int r, int c) { return value(r, c, zeros_[at(r, c)]); });
  expect_values(
      {{"quant_method", "auto-round"}, {"bits", 4}, {"packing_format", "auto_round:auto_awq"}},
      [&](int r, int c) { return value(r, c, zeros_[at(r, c)]); });
  EXPECT_THAT(error({{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}}),
              HasSubstr("version \"gemv\" is not supported"));
}

// Symmetric codes whose scales are exact in bf16 stay packed.
TEST_F(IntegersTest, WhatMemoryHoldsExactlyStaysPacked) {
  draw(8, 32);
  const auto stays = [&](const json& config) { return find(config)->stays_packed(); };
  const std::vector<float> coarse(static_cast<std::size_t>(kRows * groups_), 0.375F);
  const std::vector<float> fine(coarse.size(), 0.376F);
  const auto words = [](int count, std::uint32_t word) {
    return std::vector<std::uint32_t>(static_cast<std::size_t>(count), word);
  };
  for (const std::string kind : {"gptq", "awq"}) {
    const bool is_gptq = kind == "gptq";
    const json config = {{"quant_method", kind}, {"bits", 4}, {"checkpoint_format", "gptq_v2"}};
    store("qweight", "I32", is_gptq ? Shape{kCols / 8, kRows} : Shape{kCols, kRows / 8},
          words(kRows * kCols / 8, 0x7531'98F0));
    store("qzeros", "I32", {groups_, kRows / 8}, words(groups_ * kRows / 8, 0x8888'8888));
    store("scales", "F16", {groups_, kRows}, halves(coarse));
    EXPECT_TRUE(stays(config)) << kind;
    store("scales", "F16", {groups_, kRows}, halves(fine));
    EXPECT_FALSE(stays(config)) << kind;
    store("scales", "F16", {groups_, kRows}, halves(coarse));
    store("qzeros", "I32", {groups_, kRows / 8}, words(groups_ * kRows / 8, 0x8888'8878));
    EXPECT_FALSE(stays(config)) << kind;
  }
  const json weights = {
      {"num_bits", 8}, {"type", "int"}, {"group_size", 32}, {"strategy", "group"}};
  store("weight", "I8", {kRows, kCols}, std::vector<std::int8_t>(kRows * kCols, -128));
  store("weight_scale", "F32", {kRows, groups_}, coarse);
  EXPECT_TRUE(stays(compressed(weights)));
  store("weight_scale", "F32", {kRows, groups_}, fine);
  EXPECT_FALSE(stays(compressed(weights)));
}

class Fp4Test : public QuantizedTest {
 protected:
  void SetUp() override {
    codes_ = integers(kRows * kCols, 16);
    for (std::size_t i = 0; i < codes_.size(); i += 2) {
      bytes_.push_back(static_cast<std::uint8_t>(codes_[i] | codes_[i + 1] << 4));
    }
  }
  [[nodiscard]] float code(int r, int c) const {
    constexpr std::array<float, 8> kValues{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
    const int i = codes_[static_cast<std::size_t>(r * kCols + c)];
    return kValues[static_cast<std::size_t>(i % 8)] * (i < 8 ? 1.0F : -1.0F);
  }
  std::vector<int> codes_;
  std::vector<std::uint8_t> bytes_;
};

TEST_F(Fp4Test, NvidiasAndMx) {
  store("weight_packed", "U8", {kRows, kCols / 2}, bytes_);
  std::vector<std::uint8_t> scales;
  for (const int i : integers(kRows * kCols / 16, 127)) {
    scales.push_back(fp8_code(i));
  }
  store("weight_scale", "F8_E4M3", {kRows, kCols / 16}, scales);
  store("weight_global_scale", "F32", {1}, std::vector<float>{3.0F});
  const json config = compressed(
      {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}});
  expect_values(config, [&](int r, int c) {
    return code(r, c) *
           (to_float(f8e4m3{scales[static_cast<std::size_t>(r * (kCols / 16) + c / 16)]}) / 3.0F);
  });

  forget("weight_global_scale");
  std::vector<std::uint8_t> exponents;
  for (const int i : integers(kRows * kCols / 32, 20)) {
    exponents.push_back(static_cast<std::uint8_t>(117 + i));
  }
  store("weight_scale", "U8", {kRows, kCols / 32}, exponents);
  expect_values(config, [&](int r, int c) {
    return std::ldexp(code(r, c),
                      exponents[static_cast<std::size_t>(r * (kCols / 32) + c / 32)] - 127);
  });
}

TEST_F(QuantizedTest, MxFp6) {
  const std::vector<int> codes = integers(kRows * kCols, 64);
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < codes.size(); i += 4) {
    const int word = codes[i] | codes[i + 1] << 6 | codes[i + 2] << 12 | codes[i + 3] << 18;
    for (const int shift : {0, 8, 16}) {
      bytes.push_back(static_cast<std::uint8_t>(word >> shift));
    }
  }
  const auto value = [&](int r, int c) {
    const int code = codes[static_cast<std::size_t>(r * kCols + c)];
    const int exponent = code / 8 % 4;
    const float mantissa = static_cast<float>(code % 8) / 8.0F;
    const float size = exponent == 0 ? mantissa : std::ldexp(1.0F + mantissa, exponent - 1);
    return code < 32 ? size : -size;
  };
  store("weight_packed", "U8", {kRows, kCols * 3 / 4}, bytes);
  std::vector<std::uint8_t> exponents;
  for (const int i : integers(kRows * kCols / 32, 20)) {
    exponents.push_back(static_cast<std::uint8_t>(117 + i));
  }
  store("weight_scale", "U8", {kRows, kCols / 32}, exponents);
  const json config =
      compressed({{"num_bits", 6}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}});
  expect_values(config, [&](int r, int c) {
    return std::ldexp(value(r, c),
                      exponents[static_cast<std::size_t>(r * (kCols / 32) + c / 32)] - 127);
  });
}

TEST_F(Fp4Test, ModelOpts) {
  store("weight", "U8", {kRows, kCols / 2}, bytes_);
  std::vector<std::uint8_t> scales;
  for (const int i : integers(kRows * kCols / 16, 127)) {
    scales.push_back(fp8_code(i));
  }
  store("weight_scale", "F8_E4M3", {kRows, kCols / 16}, scales);
  store("weight_scale_2", "F32", {}, std::vector<float>{0.3F});
  expect_values({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, [&](int r, int c) {
    return code(r, c) *
           (to_float(f8e4m3{scales[static_cast<std::size_t>(r * (kCols / 16) + c / 16)]}) * 0.3F);
  });
}

// gpt-oss: the stacked matrices of two experts.
TEST_F(Fp4Test, BlocksOfExperts) {
  std::vector<std::uint8_t> exponents;
  for (const int i : integers(kRows * kCols / 32, 20)) {
    exponents.push_back(static_cast<std::uint8_t>(117 + i));
  }
  store("_blocks", "U8", {2, kRows / 2, kCols / 32, 16}, bytes_);
  store("_scales", "U8", {2, kRows / 2, kCols / 32}, exponents);
  const json config = {{"quant_method", "mxfp4"}};
  expect_values(config, [&](int r, int c) {
    return std::ldexp(code(r, c),
                      exponents[static_cast<std::size_t>(r * (kCols / 32) + c / 32)] - 127);
  });
  store("_scales", "U8", {2, kRows / 2, kCols / 16}, std::vector<std::uint8_t>(kRows * kCols / 16));
  EXPECT_THAT(error(config), HasSubstr("up_proj_scales\" has shape [2, 32, 6], expected 64 x 96"));
}

// Selections that begin and end within blocks of a scale.
TEST_F(Fp8Test, RowsOfAJoinedMatrix) {
  const std::vector<float> scales = floats(4 * 3);
  store("weight_scale_inv", "F32", {4, 3}, scales);
  const auto whole = find({{"quant_method", "fp8"}, {"weight_block_size", {16, 32}}});
  for (const auto& [first, count, step] : {std::tuple(5, 40, 1), std::tuple(3, 20, 3)}) {
    const auto part = rows_of(*whole, {.first = first, .count = count, .step = step});
    const auto values = dequantized(part, DType::f32);
    const auto* f = reinterpret_cast<const float*>(values.data());
    for (int i = 0; i < count * kCols; ++i) {
      const int r = first + i / kCols * step;
      const int c = i % kCols;
      ASSERT_EQ(f[i], code(r, c) * scales[static_cast<std::size_t>(r / 16 * 3 + c / 32)]) << i;
    }
  }
}

TEST_F(Fp8Test, ModelOpts) {
  store("weight_scale", "F32", {}, std::vector<float>{0.3F});
  expect_values({{"quant_method", "modelopt"}, {"quant_algo", "FP8"}},
                [&](int r, int c) { return code(r, c) * 0.3F; });
}

TEST_F(Fp4Test, BitsAndBytesWithNestedScales) {
  std::vector<std::uint8_t> swapped;  // the even column in the high nibble
  for (const std::uint8_t byte : bytes_) {
    swapped.push_back(static_cast<std::uint8_t>(byte << 4 | byte >> 4));
  }
  constexpr int kBlock = 32;
  constexpr int kBlocks = kRows * kCols / kBlock;
  const std::vector<float> values = floats(16);
  const std::vector<float> scales = floats(kBlocks);
  const std::string state =
      R"({"quant_type": "nf4", "blocksize": 32, "dtype": "bfloat16", "shape": [64, 96],)"
      R"("nested_blocksize": 64, "nested_dtype": "float32", "nested_offset": 0.25})";
  store("weight", "U8", {kRows * kCols / 2, 1}, swapped);
  store("weight.quant_map", "F32", {16}, values);
  store("weight.absmax", "F32", {kBlocks}, scales);
  store("weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<std::int64_t>(state.size())},
        std::vector<char>(state.begin(), state.end()));
  const auto of_code = [&](int r, int c) {
    return values[static_cast<std::size_t>(codes_[static_cast<std::size_t>(r * kCols + c)])];
  };
  const json config = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}};
  expect_values(config, [&](int r, int c) {
    return of_code(r, c) * scales[static_cast<std::size_t>((r * kCols + c) / kBlock)];
  });

  const std::vector<float> nested = floats(256);
  const std::vector<float> outer = floats((kBlocks + 63) / 64);
  std::vector<std::uint8_t> absmax;
  for (const int i : integers(kBlocks, 256)) {
    absmax.push_back(static_cast<std::uint8_t>(i));
  }
  store("weight.absmax", "U8", {kBlocks}, absmax);
  store("weight.nested_quant_map", "F32", {256}, nested);
  store("weight.nested_absmax", "F32", {static_cast<std::int64_t>(outer.size())}, outer);
  expect_values(config, [&](int r, int c) {
    const auto block = static_cast<std::size_t>((r * kCols + c) / kBlock);
    // The product is exact in double, so it does not matter if a compiler fuses it with the sum.
    const double product = static_cast<double>(nested[absmax[block]]) * outer[block / 64];
    return of_code(r, c) * (static_cast<float>(product) + 0.25F);
  });
}

TEST_F(IntegersTest, BitsAndBytesInt8) {
  draw(8, kCols);
  std::vector<std::int8_t> bytes;
  for (const int code : codes_) {
    bytes.push_back(static_cast<std::int8_t>(code - 128));
  }
  store("weight", "I8", {kRows, kCols}, bytes);
  store("SCB", "F32", {kRows}, scales_);
  expect_values({{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}}, [&](int r, int c) {
    return static_cast<float>(code(r, c) - 128) * (scales_[static_cast<std::size_t>(r)] / 127.0F);
  });
}

TEST(QuantizationMethods, WhatIsUnknownIsNamed) {
  const auto error = [](const json& config) {
    return error_of(
        [&] { (void)read_method(JsonObject(config, "dir/config.json: quantization_config")); });
  };
  EXPECT_THAT(
      error({{"quant_method", "hqq"}}),
      HasSubstr("dir/config.json: quantization_config: quant_method \"hqq\" is not supported"));
  EXPECT_THAT(error({{"quant_method", "auto-round"}, {"packing_format", "auto_round:fake"}}),
              HasSubstr("packing_format \"auto_round:fake\" is not supported"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 5}}),
              HasSubstr("bits: expected 2, 3, 4 or 8"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}}),
              HasSubstr("checkpoint_format \"marlin\" is not supported"));
  EXPECT_THAT(error({{"quant_method", "compressed-tensors"},
                     {"sparsity_config", {{"format", "sparse-24-bitmask"}}}}),
              HasSubstr("format \"sparse-24-bitmask\" is not supported"));
}

}  // namespace
}  // namespace winnow::quantized
