// Divides a block of memory into ranges of different sizes.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace winnow {

/// Hands out ranges of the bytes [0, size), each the first gap that is large enough.
class RangeAllocator {
 public:
  explicit RangeAllocator(std::size_t size) : size_(size) {}

  /// The beginning of a range of `bytes` bytes, at least 1; nullopt if no gap is large enough.
  std::optional<std::size_t> take(std::size_t bytes);
  /// Frees the range that begins at `begin`.
  void give_back(std::size_t begin);

  [[nodiscard]] std::size_t size() const { return size_; }
  /// Bytes of all ranges.
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::size_t size_;
  std::size_t used_ = 0;
  std::map<std::size_t, std::size_t> ends_;  // of ranges, by beginning
};

}  // namespace winnow
