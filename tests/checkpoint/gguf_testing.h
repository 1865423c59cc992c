// Builds GGUF images for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/tensor.h"

namespace winnow::gguf {

/// Collects keys and tensors; bytes() returns the file.
class GgufImage {
 public:
  void u32(const std::string& key, std::uint32_t value) { add(key, 4, raw(value)); }
  void f32(const std::string& key, float value) { add(key, 6, raw(value)); }
  /// A number of ggml's value type `type`.
  template <class T>
  void number(const std::string& key, std::uint32_t type, T value) {
    add(key, type, raw(value));
  }
  void flag(const std::string& key, bool value) { add(key, 7, raw(value)); }
  void text(const std::string& key, const std::string& value) { add(key, 8, string(value)); }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes = raw(std::uint32_t{8}) + raw(std::uint64_t{values.size()});
    for (const std::string& value : values) {
      bytes += string(value);
    }
    add(key, 9, bytes);
  }
  template <class T>
  void numbers(const std::string& key, std::uint32_t type, const std::vector<T>& values) {
    std::string bytes = raw(type) + raw(std::uint64_t{values.size()});
    for (const T value : values) {
      bytes += raw(value);
    }
    add(key, 9, bytes);
  }
  /// `shape`: slowest dimension first.
  void tensor(const std::string& name, std::uint32_t type, const Shape& shape,
              const std::string& data) {
    infos_ += string(name) + raw(static_cast<std::uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) {
      infos_ += raw(static_cast<std::uint64_t>(*size));
    }
    infos_ += raw(type) + raw(std::uint64_t{data_.size()});
    data_ += data;
    pad(data_);
    ++tensors_;
  }
  [[nodiscard]] std::string bytes() const {
    std::string out =
        "GGUF" + raw(std::uint32_t{3}) + raw(tensors_) + raw(keys_) + metadata_ + infos_;
    pad(out);
    return out + data_;
  }

 private:
  static constexpr std::size_t kAlignment = 32;

  template <class T>
  static std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  static std::string string(const std::string& text) {
    return raw(std::uint64_t{text.size()}) + text;
  }
  static void pad(std::string& bytes) {
    bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
  }
  void add(const std::string& key, std::uint32_t type, const std::string& value) {
    metadata_ += string(key) + raw(type) + value;
    ++keys_;
  }

  std::string metadata_, infos_, data_;
  std::uint64_t tensors_ = 0;
  std::uint64_t keys_ = 0;
};

}  // namespace winnow::gguf
