#include "grammar/grammar_scanner.h"

#include <algorithm>
#include <cctype>

namespace winnow::grammar {

void GrammarScanner::skip(bool lines) {
  for (;;) {
    const auto begins = [&](char c) {
      return c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n');
    };
    while (!at_end() && begins(text_[at_])) {
      ++at_;
    }
    if (!sees(comment_)) {
      return;
    }
    at_ = std::min(text_.find('\n', at_), text_.size());
  }
}

std::string GrammarScanner::name() {
  const std::size_t begin = at_;
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0 || c == '_'; };
  while (!at_end() && (is_letter(static_cast<unsigned char>(text_[at_])) ||
                       (at_ > begin && (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 ||
                                        text_[at_] == '-')))) {
    ++at_;
  }
  return std::string(text_.substr(begin, at_ - begin));
}

int GrammarScanner::integer() {
  constexpr int kMost = 1 << 16;
  int value = -1;
  while (!at_end() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
    value = std::max(value, 0) * 10 + (text_[at_++] - '0');
    require(value <= kMost, "{}: more than {} times", where(), kMost);
  }
  return value;
}

std::uint32_t GrammarScanner::hexadecimal(int digits) {
  std::uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const auto c = static_cast<unsigned char>(next());
    require(std::isxdigit(c) != 0, "{}: expected {} hexadecimal digits", where(), digits);
    value = value * 16 + static_cast<std::uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return value;
}

std::uint32_t GrammarScanner::character() {
  const auto first = static_cast<unsigned char>(next());
  if (first == '\\') {
    switch (const char c = next()) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case '0':
        return 0;
      case 'x':
        return hexadecimal(2);
      case 'u':
        return hexadecimal(4);
      case 'U':
        return hexadecimal(8);
      default:
        require(std::isalnum(static_cast<unsigned char>(c)) == 0, "{}: \\{} is not known", where(),
                c);
        return static_cast<unsigned char>(c);
    }
  }
  const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  require(at_ - 1 + length <= text_.size(), "{}: text is not UTF-8", where());
  const auto points = code_points_of(std::string(text_.substr(at_ - 1, length)));
  at_ += length - 1;
  return points.at(0);
}

std::string GrammarScanner::quoted(char quote) {
  std::string text;
  while (!sees(std::string_view(&quote, 1))) {
    const std::uint32_t c = character();
    require(c <= kLastCodePoint && (c < 0xD800 || c > 0xDFFF), "{}: no character", where());
    text += utf8_of(c);
  }
  ++at_;
  return text;
}

}  // namespace winnow::grammar
