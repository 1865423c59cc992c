#include "checkpoint/weight_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/gguf_testing.h"

namespace winnow {
namespace {

using ::testing::HasSubstr;

// A file in safetensors with one tensor of 8 bytes.
std::string one_tensor(const std::string& name, const std::string& type, int elements) {
  const std::string header = fmt::format(
      R"({{"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[0,8]}}}})", name, type, elements);
  return image_of(header, std::string(8, 'v'));
}

std::string gguf_with_divisors(const std::string& divisors) {
  gguf::GgufImage image;
  image.text("general.architecture", "llama");
  image.texts("tokenizer.ggml.tokens", std::vector<std::string>(100, "a token"));
  image.tensor("token_embd.weight", gguf::kF32, {8, 4}, std::string(8 * 4 * 4, 'e'));
  image.tensor("rope_freqs.weight", gguf::kF32, {2}, divisors);
  image.tensor("output.weight", gguf::kF32, {8, 4}, std::string(8 * 4 * 4, 'o'));
  return image.bytes();
}

TEST(WeightHeader, SafetensorsStateItsSize) {
  const std::string file = one_tensor("a.weight", "F32", 2);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const auto header = weight_header_size(bytes_of(file).first(size), "f");
    ASSERT_EQ(header.has_value(), size >= 8) << size;
    EXPECT_EQ(header.value_or(file.size() - 8), file.size() - 8);
  }
  EXPECT_LT(*weight_header_size(bytes_of(std::string(8, '\xff')), "f"), 1 << 27)
      << "no format allows more";
}

TEST(WeightHeader, GgufIsReadUntilItsTensorsAreListed) {
  const std::string file = gguf_with_divisors("divisors");
  const auto whole = weight_header_size(bytes_of(file), "f");
  ASSERT_TRUE(whole.has_value());
  EXPECT_LT(*whole, file.size() - 2 * 128);
  EXPECT_GT(*whole + 32, file.size() - 2 * 128 - 32) << "but for padding";
  for (std::size_t size = 4; size < file.size(); ++size) {
    EXPECT_EQ(weight_header_size(bytes_of(file).first(size), "f"),
              size < *whole ? std::nullopt : whole);
  }
  EXPECT_THAT(
      error_of([&] { (void)weight_header_size(bytes_of("GGUF" + std::string(20, 'x')), "f"); }),
      HasSubstr("f: GGUF version"));
}

TEST(WeightHeader, DivisorsOfFrequenciesDescribeAModel) {
  const std::string file = gguf_with_divisors("divisors");
  const auto values = describing_values(bytes_of(file), "f");
  ASSERT_EQ(values.size(), 1);
  EXPECT_EQ(std::memcmp(values[0].data(), "divisors", values[0].size()), 0);
  EXPECT_EQ(static_cast<std::size_t>(values[0].data() - bytes_of(file).data()),
            file.find("divisors"));
  EXPECT_TRUE(describing_values(bytes_of(one_tensor("a.weight", "F32", 2)), "f").empty());
}

TEST(WeightHeader, IntegersNeedTheirValues) {
  const auto refused = [](const std::string& name, const std::string& type, int elements) {
    const std::string file = one_tensor(name, type, elements);
    try {
      (void)describing_values(bytes_of(file), "f");
      return false;
    } catch (const ValuesNeeded& error) {
      EXPECT_THAT(error.what(), HasSubstr("f: tensor \"" + name + "\""));
      return true;
    }
  };
  EXPECT_TRUE(refused("a.qweight", "I32", 2));
  EXPECT_TRUE(refused("a.weight_packed", "I32", 2));
  EXPECT_TRUE(refused("a.weight", "I8", 8));
  EXPECT_TRUE(refused("a.weight.quant_state.bitsandbytes__nf4", "U8", 8));
  EXPECT_FALSE(refused("a.weight_packed", "U8", 8)) << "fp4";
  EXPECT_FALSE(refused("a.weight", "F8_E4M3", 8));
  EXPECT_FALSE(refused("a.blocks", "U8", 8)) << "MXFP4";
}

}  // namespace
}  // namespace winnow
