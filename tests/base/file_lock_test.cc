#include "base/file_lock.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"

namespace winnow {
namespace {

TEST(FileLock, IsHeldByOneAtATime) {
  const std::filesystem::path directory = ::testing::TempDir();
  const std::filesystem::path file = directory / "winnow_file_lock";
  std::optional<FileLock> first(file);
  try {
    const FileLock second(file);
    ADD_FAILURE() << "two hold it";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              file.parent_path().string() + ": another process is writing there");
  }
  first.reset();
  EXPECT_FALSE(std::filesystem::exists(file));
  const FileLock third(file);
}

TEST(FileLock, NeedsAFolder) {
  EXPECT_THROW(FileLock(std::filesystem::path(::testing::TempDir()) / "none" / "lock"), Error);
}

}  // namespace
}  // namespace winnow
