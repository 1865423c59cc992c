// A text split into pieces: pre-tokenizers pass it from one to the next.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

/// One buffer and the positions where it is split, so a long text needs few allocations. No piece
/// is empty.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::string_view text) { add(text); }

  /// Appends a piece; an empty one is dropped.
  void add(std::string_view piece) {
    if (!piece.empty()) {
      text_ += piece;
      ends_.push_back(text_.size());
    }
  }
  /// Appends a piece that write(text) appends to `text`; an empty one is dropped.
  template <class Write>
  void add_written(const Write& write) {
    const std::size_t before = text_.size();
    write(text_);
    if (text_.size() > before) {
      ends_.push_back(text_.size());
    }
  }
  void reserve(std::size_t bytes, std::size_t count) {
    text_.reserve(bytes);
    ends_.reserve(count);
  }

  [[nodiscard]] std::size_t size() const { return ends_.size(); }
  [[nodiscard]] std::size_t bytes() const { return text_.size(); }
  [[nodiscard]] std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string text_;
  std::vector<std::size_t> ends_;
};

}  // namespace winnow
