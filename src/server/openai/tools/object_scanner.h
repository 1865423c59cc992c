// Finds the end of a JSON object that arrives in pieces.
#pragma once

#include <string_view>

namespace winnow::server {

class ObjectScanner {
 public:
  /// The number of bytes of `text`, the next piece, that belong to the object.
  std::size_t scan(std::string_view text) {
    std::size_t end = 0;
    while (end < text.size() && !ended_) {
      const char c = text[end++];
      if (in_string_) {
        in_string_ = escaped_ || c != '"';
        escaped_ = !escaped_ && c == '\\';
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if ((c == '}' || c == ']') && --depth_ == 0) {
        ended_ = true;
      }
    }
    return end;
  }
  [[nodiscard]] bool begun() const { return depth_ > 0 || ended_; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool ended_ = false;
};

}  // namespace winnow::server
