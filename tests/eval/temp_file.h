// A unique file name; the file is removed at the end.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace winnow::testing {

class TempFile {
 public:
  explicit TempFile(const std::string& suffix)
      : path_(std::filesystem::path(::testing::TempDir()) /
              (std::string(
                   ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name()) +
               "." + ::testing::UnitTest::GetInstance()->current_test_info()->name() + suffix)) {
    std::filesystem::remove(path_);
  }
  ~TempFile() { std::filesystem::remove(path_); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  [[nodiscard]] std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path path_;
};

/// The message of the Error that `body` throws; "" if it throws none.
template <class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace winnow::testing
