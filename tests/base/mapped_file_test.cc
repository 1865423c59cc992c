#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace winnow {
namespace {

std::filesystem::path write(const std::string& name, const std::vector<char>& bytes) {
  const auto path = std::filesystem::path(::testing::TempDir()) / name;
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

TEST(MappedFile, ShowsTheFileAlsoAfterPartsWereReleased) {
  std::vector<char> bytes(100'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 7);
  }
  const auto path = write("mapped_file_test", bytes);
  const MappedFile file(path);
  const auto same = [&] {
    return std::ranges::equal(file.bytes(), bytes, {}, {},
                              [](char c) { return static_cast<std::byte>(c); });
  };
  EXPECT_TRUE(same());
  for (const std::size_t begin : {0U, 1U, 4096U, 99'999U}) {
    MappedFile::release(file.bytes().subspan(begin));
    MappedFile::release(file.bytes().subspan(begin, 1));
    EXPECT_TRUE(same());
  }
  std::filesystem::remove(path);
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  EXPECT_THROW(MappedFile("/nowhere/at/all"), Error);
  EXPECT_THROW(MappedFile{::testing::TempDir()}, Error);
}

}  // namespace
}  // namespace winnow
