#include <gmock/gmock.h>

#include <fstream>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf_testing.h"

namespace winnow::gguf {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// Compares with the values that PyPI's gguf decodes (make_gguf_cases.py).
TEST(GgufBlocks, DecodeToTheBit) {
  const json cases =
      json::parse(std::ifstream(WINNOW_SOURCE_DIR "/tests/checkpoint/gguf_blocks.json"));
  EXPECT_EQ(cases.size(), 15U);
  for (const auto& [type, value] : cases.items()) {
    SCOPED_TRACE(value["name"].get<std::string>());
    const BlockFormat& format =
        block_format(static_cast<std::uint32_t>(std::stoul(type)), "the test");
    EXPECT_EQ(format.name, value["name"].get<std::string>());
    const std::string bytes = from_hex(value["blocks"]);
    const auto bits = value["bits"].get<std::vector<std::uint32_t>>();
    const std::size_t count = bytes.size() / static_cast<std::size_t>(format.bytes);
    ASSERT_EQ(count * static_cast<std::size_t>(format.elements), bits.size());
    std::vector<float> values(bits.size());
    for (std::size_t i = 0; i < count; ++i) {
      format.decode(bytes_of(bytes).data() + i * static_cast<std::size_t>(format.bytes),
                    values.data() + i * static_cast<std::size_t>(format.elements));
    }
    for (std::size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(values[i], std::bit_cast<float>(bits[i])) << i;
    }
  }
  EXPECT_THAT(error_of([] { (void)block_format(16, "x.gguf: tensor \"a\""); }),
              HasSubstr("x.gguf: tensor \"a\": ggml type 16 is not supported; winnow reads F32"));
}

TEST(GgufFile, ReadsMetadataAndTensors) {
  GgufImage image;
  image.text("general.architecture", "llama");
  image.u32("llama.block_count", 2);
  image.f32("llama.rope.freq_base", 5e5F);
  image.flag("a.flag", true);
  image.texts("tokens", {"a", "b"});
  image.tensor("x", kF32, {2, 3}, std::string(24, '\1'));
  image.tensor("y", 8, {1, 32}, std::string(34, '\2'));
  const std::string bytes = image.bytes();
  const Content content = parse(bytes_of(bytes), "m.gguf");
  EXPECT_EQ(content.metadata["general.architecture"], "llama");
  EXPECT_EQ(content.metadata["llama.block_count"], 2);
  EXPECT_EQ(content.metadata["llama.rope.freq_base"], 5e5);
  EXPECT_EQ(content.metadata["a.flag"], true);
  EXPECT_EQ(content.metadata["tokens"], json({"a", "b"}));
  const Tensor& x = content.tensors.at("x");
  EXPECT_EQ(x.shape, (Shape{2, 3}));
  EXPECT_EQ(x.bytes.size(), 24U);
  EXPECT_EQ(content.tensors.at("y").bytes[0], std::byte{2});

  // Truncation anywhere before the final padding gives an error, not a crash.
  for (std::size_t size = 0; size < bytes.size() - 30; ++size) {
    const std::string cut = bytes.substr(0, size);
    EXPECT_NE(error_of([&] { (void)parse(bytes_of(cut), "m.gguf"); }), "no error") << size;
  }
}

/// One file of a split model.
std::string part(std::uint16_t number, std::uint16_t count, const std::string& tensor,
                 std::int32_t tensors = 2) {
  GgufImage image;
  image.number("split.no", 2, number);
  image.number("split.count", 2, count);
  image.number("split.tensors.count", 5, tensors);
  if (number == 0) {
    image.text("general.architecture", "llama");
  }
  image.tensor(tensor, kF32, {2}, std::string(8, static_cast<char>('a' + number)));
  return image.bytes();
}

TEST(GgufFile, ReadsAModelThatIsSplit) {
  const TempDir dir;
  dir.write("m-00001-of-00002.gguf", part(0, 2, "x"));
  const auto error = [&](const std::string& name) {
    return error_of([&] { (void)File(dir.path() / name); });
  };
  EXPECT_THAT(error("m-00001-of-00002.gguf"),
              HasSubstr("m-00002-of-00002.gguf: the file is missing; the model is split into 2"));
  dir.write("m-00002-of-00002.gguf", part(1, 2, "y"));
  const File file(dir.path() / "m-00001-of-00002.gguf");
  EXPECT_EQ(file.metadata()["general.architecture"], "llama");
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors().at("x").bytes[0], std::byte{'a'});
  EXPECT_EQ(file.tensors().at("y").bytes[0], std::byte{'b'});
  EXPECT_THAT(error("m-00002-of-00002.gguf"), HasSubstr("expected the first of the files"));
  dir.write("m-00002-of-00002.gguf", part(1, 2, "x"));
  EXPECT_THAT(error("m-00001-of-00002.gguf"), HasSubstr("tensor \"x\" is in an earlier file, too"));
  dir.write("m-00002-of-00002.gguf", part(2, 2, "y"));
  EXPECT_THAT(error("m-00001-of-00002.gguf"), HasSubstr("split.no is 2, expected 1"));
  dir.write("alone.gguf", part(0, 2, "x"));
  EXPECT_THAT(error("alone.gguf"), HasSubstr("split.count is 2, but the file's name says 1"));
  dir.write("few.gguf", part(0, 1, "x", 3));
  EXPECT_THAT(error("few.gguf"), HasSubstr("split.tensors.count is 3, but the files have 1"));
}

TEST(GgufFile, WhatIsWrongIsNamed) {
  const auto error = [](const std::string& bytes) {
    return error_of([&] { (void)parse(bytes_of(bytes), "m.gguf"); });
  };
  EXPECT_THAT(error("GGML0000"), HasSubstr("m.gguf: not a GGUF file"));
  EXPECT_THAT(error(std::string("GGUF\1\0\0\0", 8)), HasSubstr("version 1, expected 2 or 3"));
  GgufImage odd;
  odd.tensor("x", 8, {2, 16}, std::string(34, '\0'));
  EXPECT_THAT(error(odd.bytes()), HasSubstr("tensor \"x\": rows of 16 are no whole blocks of 32"));
  GgufImage unknown;
  unknown.tensor("x", 99, {2, 16}, "");
  EXPECT_THAT(error(unknown.bytes()), HasSubstr("tensor \"x\": ggml type 99 is not supported"));
  GgufImage alignment;
  alignment.text("general.alignment", "32");
  EXPECT_THAT(error(alignment.bytes()),
              HasSubstr("general.alignment: expected a number of bytes, got \"32\""));
  GgufImage twice;
  twice.tensor("x", kF32, {1}, std::string(4, '\0'));
  twice.tensor("x", kF32, {1}, std::string(4, '\0'));
  EXPECT_THAT(error(twice.bytes()), HasSubstr("tensor \"x\" appears twice"));
}

}  // namespace
}  // namespace winnow::gguf
