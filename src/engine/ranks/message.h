// Values as bytes, for ranks of the same program.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace winnow::engine {

class MessageWriter {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put_bytes(&value, sizeof(T));
  }
  template <class T>
  void put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(values.size());
    put_bytes(values.data(), values.size_bytes());
  }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void put_bytes(const void* from, std::size_t count) {
    const std::size_t before = bytes_.size();
    bytes_.resize(before + count);
    if (count > 0) {
      std::memcpy(bytes_.data() + before, from, count);
    }
  }

  std::vector<std::byte> bytes_;
};

/// Takes values in the order in which they were put. The bytes must outlive it.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    take_bytes(&value, sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> take_all() {
    std::vector<T> values(take<std::size_t>());
    take_bytes(values.data(), values.size() * sizeof(T));
    return values;
  }

 private:
  void take_bytes(void* to, std::size_t count) {
    assert(count <= left_.size());
    if (count > 0) {
      std::memcpy(to, left_.data(), count);
    }
    left_ = left_.subspan(count);
  }

  std::span<const std::byte> left_;
};

}  // namespace winnow::engine
