#include "tokenizer/jinja/lexer_literal.h"

#include <uniname.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

char at(std::string_view text, std::size_t i) {
  return i < text.size() ? text[i] : '\0';
}

/// The length of digits with single underscores between them.
template <class IsDigit>
std::size_t digits(std::string_view text, std::size_t from, const IsDigit& is_digit_here) {
  std::size_t end = from;
  while (is_digit_here(at(text, end)) ||
         (end > from && at(text, end) == '_' && is_digit_here(at(text, end + 1)))) {
    ++end;
  }
  return end - from;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
  return out;
}

/// The length of the float at the beginning, 0 if there is none: 1.5, 1e3, 1.5e-3.
std::size_t float_length(std::string_view text) {
  std::size_t end = digits(text, 0, is_digit);
  bool is_float = false;
  if (at(text, end) == '.' && is_digit(at(text, end + 1))) {
    end += 1 + digits(text, end + 1, is_digit);
    is_float = true;
  }
  if (at(text, end) == 'e' || at(text, end) == 'E') {
    const bool sign = at(text, end + 1) == '+' || at(text, end + 1) == '-';
    const std::size_t from = end + (sign ? 2 : 1);
    if (is_digit(at(text, from))) {
      end = from + digits(text, from, is_digit);
      is_float = true;
    }
  }
  return is_float ? end : 0;
}

std::size_t integer_length(std::string_view text) {
  const char base = static_cast<char>(std::tolower(static_cast<unsigned char>(at(text, 1))));
  const auto binary = [](char c) { return c == '0' || c == '1'; };
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  const auto zero = [](char c) { return c == '0'; };
  if (text.front() != '0') {
    return digits(text, 0, is_digit);
  }
  const std::size_t prefixed = base == 'x'   ? digits(text, 2, is_hex)
                               : base == 'o' ? digits(text, 2, octal)
                               : base == 'b' ? digits(text, 2, binary)
                                             : 0;
  return prefixed > 0 ? 2 + prefixed : digits(text, 0, zero);
}

/// Decodes Python's escapes.
class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  /// The text, or nullopt when an escape is malformed.
  std::optional<std::string> run() {
    while (at_ < text_.size() && good_) {
      const char c = text_[at_++];
      if (c == '\\') {
        escape();
      } else {
        out_ += c;
      }
    }
    return good_ ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  void escape() {
    const char c = at(text_, at_++);
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t i = kLetters.find(c); i != std::string_view::npos) {
      out_ += kMeanings[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c >= '0' && c <= '7') {
      octal();
    } else if (c == 'N') {
      named();
    } else if (c != '\n') {
      out_ += '\\';
      out_ += c;
    }
  }

  /// {NAME OF A CHARACTER}
  void named() {
    const std::size_t end = text_.find('}', at_);
    good_ = at(text_, at_) == '{' && end != std::string_view::npos;
    if (good_) {
      const std::string name(text_.substr(at_ + 1, end - at_ - 1));
      const ucs4_t code = unicode_name_character(name.c_str());
      good_ = code != UNINAME_INVALID;
      if (good_) {
        append(code);
      }
      at_ = end + 1;
    }
  }

  void hexadecimal(std::size_t length) {
    const std::string_view hex = text_.substr(at_, length);
    if (hex.size() < length || !std::all_of(hex.begin(), hex.end(), is_hex)) {
      good_ = false;
      return;
    }
    append(std::stoul(std::string(hex), nullptr, 16));
    at_ += length;
  }

  void octal() {
    --at_;
    unsigned long code = 0;
    for (int i = 0; i < 3 && at(text_, at_) >= '0' && at(text_, at_) <= '7'; ++i) {
      code = code * 8 + static_cast<unsigned long>(text_[at_++] - '0');
    }
    append(code);
  }

  void append(unsigned long code) {
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      good_ = false;  // Python allows half a surrogate pair, but cannot print it
    } else {
      append_utf8(static_cast<char32_t>(code), out_);
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
  bool good_ = true;
};

Literal bad_string(std::string error) {
  return {Token::Kind::string, {}, 0, std::move(error)};
}

std::optional<Literal> scan_string(std::string_view source) {
  for (std::size_t i = 1; i < source.size(); ++i) {
    if (source[i] == '\\') {
      ++i;
    } else if (source[i] == source.front()) {
      std::optional<std::string> text = Unescaper(source.substr(1, i - 1)).run();
      if (!text) {
        return bad_string("a string has an escape that is malformed or not supported");
      }
      return Literal{Token::Kind::string, std::move(*text), i + 1, {}};
    }
  }
  return bad_string("a string has no end");
}

}  // namespace

std::optional<Literal> scan_literal(std::string_view source, bool after_dot) {
  const char first = source.front();
  if (first == '\'' || first == '"') {
    return scan_string(source);
  }
  if (is_digit(first)) {
    const std::size_t real = after_dot ? 0 : float_length(source);
    const std::size_t length = real > 0 ? real : integer_length(source);
    return Literal{real > 0 ? Token::Kind::real : Token::Kind::integer,
                   without_underscores(source.substr(0, length)),
                   length,
                   {}};
  }
  if (!is_name(first)) {
    return std::nullopt;
  }
  const auto end = static_cast<std::size_t>(
      std::find_if_not(source.begin(), source.end(), is_name) - source.begin());
  return Literal{Token::Kind::name, std::string(source.substr(0, end)), end, {}};
}

}  // namespace winnow::jinja
