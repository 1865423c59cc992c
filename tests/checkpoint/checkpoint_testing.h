// Common parts of tests with files: temporary directories, tensors, file images.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/safetensors.h"

namespace winnow {

/// A directory that is removed at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "winnow-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ostringstream out;
    out << std::ifstream(path_ / name, std::ios::binary).rdbuf();
    return out.str();
  }

 private:
  std::filesystem::path path_;
};

/// The message of the Error that `action` throws; "no error" if it throws none. It must be one
/// line of printable text.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char c) {
      return c >= 0x20 && c < 0x7F;
    })) << message;
    return message;
  }
  return "no error";
}

/// A safetensors image: length, header, data.
inline std::string image_of(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string image(reinterpret_cast<const char*>(&length), sizeof length);
  return image + header + data;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Tensors that own their memory.
class OwnedTensors {
 public:
  void add(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed = 0) {
    TensorView view{dtype, shape, nullptr};
    std::string& bytes = memory_.emplace_back(view.bytes(), '\0');
    Random random(seed, map_.size());
    for (char& c : bytes) {
      c = static_cast<char>(random.bits());
    }
    view.data = reinterpret_cast<const std::byte*>(bytes.data());
    map_[name] = view;
  }
  TensorMap& map() { return map_; }

 private:
  std::deque<std::string> memory_;
  TensorMap map_;
};

inline void expect_same_tensors(const TensorMap& expected, const TensorMap& actual) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name;
    EXPECT_EQ(found->second.dtype, tensor.dtype) << name;
    ASSERT_EQ(found->second.shape, tensor.shape) << name;
    EXPECT_EQ(std::memcmp(found->second.data, tensor.data, tensor.bytes()), 0) << name;
  }
}

}  // namespace winnow
