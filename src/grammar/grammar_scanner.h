// Reads characters of a grammar's text, and names their lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "grammar/code_points.h"

namespace winnow::grammar {

/// A place in a grammar's text. Formatted as "grammar, line 3": lines are counted only then, not
/// for each check that passes.
struct GrammarPlace {
  std::string_view text_before;
};

}  // namespace winnow::grammar

template <>
struct fmt::formatter<winnow::grammar::GrammarPlace> : fmt::formatter<std::string> {
  auto format(const winnow::grammar::GrammarPlace& place, fmt::format_context& context) const {
    const auto line = std::ranges::count(place.text_before, '\n') + 1;
    return fmt::formatter<std::string>::format(fmt::format("grammar, line {}", line), context);
  }
};

namespace winnow::grammar {

class GrammarScanner {
 public:
  /// `comment`: the start of a comment, which ends with the line.
  GrammarScanner(std::string_view text, std::string_view comment)
      : text_(text), comment_(comment) {}

  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] bool sees(std::string_view word) const {
    return text_.substr(at_).starts_with(word);
  }
  bool take(std::string_view word) {
    if (!sees(word)) {
      return false;
    }
    at_ += word.size();
    return true;
  }
  char next() {
    require(!at_end(), "{}: the grammar ends too soon", where());
    return text_[at_++];
  }
  /// Skips blanks and comments; skips ends of lines only if `lines`.
  void skip(bool lines);
  /// Letters, digits, - and _, not starting with a digit or -; "" if there are none.
  std::string name();
  /// The number of the next digits; -1 if there are none.
  int integer();
  /// The text after an opening quote, up to the same quote, with escapes as in JSON and \xHH.
  std::string quoted(char quote);
  /// One character, or an escape.
  std::uint32_t character();

  [[nodiscard]] std::size_t place() const { return at_; }
  void go_to(std::size_t place) { at_ = place; }
  [[nodiscard]] std::string_view between(std::size_t begin, std::size_t end) const {
    return text_.substr(begin, end - begin);
  }
  [[nodiscard]] GrammarPlace where() const { return {text_.substr(0, at_)}; }

 private:
  std::uint32_t hexadecimal(int digits);

  std::string_view text_;
  std::string_view comment_;
  std::size_t at_ = 0;
};

}  // namespace winnow::grammar
