// What a command may replace, and what it must leave alone.
#include "checkpoint/replaceable_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "base/whole_file.h"
#include "checkpoint/checkpoint_testing.h"

namespace winnow {
namespace {

using ::testing::HasSubstr;

class ReplaceableFile : public ::testing::Test {
 protected:
  [[nodiscard]] std::string refusal(const std::string& name) const {
    return error_of([&] {
      require_replaceable(directory_.path() / name, text_that_begins("a poem", "Roses"));
    });
  }

  TempDir directory_;
};

TEST_F(ReplaceableFile, IsMissingOrEmptyOrOfTheKind) {
  EXPECT_EQ(refusal("missing"), "no error");
  directory_.write("empty", "");
  EXPECT_EQ(refusal("empty"), "no error");
  directory_.write("poem", "Roses are red");
  EXPECT_EQ(refusal("poem"), "no error");
}

TEST_F(ReplaceableFile, IsNoOtherFileAndNoFolder) {
  for (const std::string text : {"Ro", "Violets are blue"}) {
    directory_.write("other", text);
    EXPECT_THAT(refusal("other"), HasSubstr("other: holds something other than a poem: name "
                                            "another file"));
    EXPECT_EQ(directory_.read("other"), text);
  }
  std::filesystem::create_directory(directory_.path() / "folder");
  EXPECT_THAT(refusal("folder"), HasSubstr("folder: cannot write: is a directory"));
  EXPECT_THAT(refusal("no/where"), HasSubstr("there is no folder"));
}

TEST_F(ReplaceableFile, MayBeADeviceOrAPipe) {
  EXPECT_EQ(refusal("/dev/null"), "no error");
  ASSERT_EQ(::mkfifo((directory_.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal("pipe"), "no error");  // and does not wait for a writer
}

TEST_F(ReplaceableFile, OfTensorsHasNoOtherTensor) {
  const auto kind =
      safetensors_of("two tensors", [](std::string_view name) { return name != "other"; });
  const auto refused = [&](const std::string& name) {
    return error_of([&] { require_replaceable(directory_.path() / name, kind); }) != "no error";
  };
  const float value = 1.0F;
  const TensorView tensor{DType::f32, {1}, reinterpret_cast<const std::byte*>(&value)};
  write_safetensors(directory_.path() / "ours", {{"a", tensor}, {"b", tensor}});
  EXPECT_FALSE(refused("ours"));
  write_safetensors(directory_.path() / "model", {{"a", tensor}, {"other", tensor}});
  EXPECT_TRUE(refused("model"));
  write_safetensors(directory_.path() / "none", TensorMap());
  EXPECT_TRUE(refused("none"));
  directory_.write("text", "no tensors");
  EXPECT_TRUE(refused("text"));
}

TEST_F(ReplaceableFile, AReaderNamesWhatItCannotRead) {
  const auto path = directory_.path() / "file";
  EXPECT_EQ(read_file_if_there(path), "");
  EXPECT_THAT(error_of([&] { read_whole_file(path); }), HasSubstr(path.string()));
  const std::string text(200'000, 'x');
  directory_.write("file", text);
  EXPECT_EQ(read_whole_file(path), text);
  EXPECT_THAT(error_of([&] { read_whole_file(directory_.path()); }),
              HasSubstr(directory_.path().string() + ": cannot read: Is a directory"));
}

}  // namespace
}  // namespace winnow
