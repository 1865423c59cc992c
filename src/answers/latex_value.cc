#include <cctype>
#include <charconv>
#include <cmath>
#include <numbers>

#include "answers/answer_check.h"
#include "answers/answer_spelling.h"

namespace winnow::answers {
namespace {

// Recursive descent over normalised text. Every function returns nullopt for input that it cannot
// parse, which ends the whole parse.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<double> parse() {
    const auto value = sum();
    return value && at_ == text_.size() && std::isfinite(*value) ? value : std::nullopt;
  }

 private:
  using Value = std::optional<double>;
  static constexpr int kDeepest = 100;

  bool take(std::string_view token) {
    if (text_.substr(at_).starts_with(token)) {
      at_ += token.size();
      return true;
    }
    return false;
  }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  [[nodiscard]] bool digit_ahead() const {
    return std::isdigit(static_cast<unsigned char>(peek())) != 0 || peek() == '.';
  }

  Value sum() {
    Value total = product();
    while (total) {
      const bool adds = take("+");
      if (!adds && !take("-")) {
        break;
      }
      const Value next = product();
      total = next ? Value(adds ? *total + *next : *total - *next) : std::nullopt;
    }
    return total;
  }

  Value product() {
    Value total = factor();
    while (total) {
      if (take("*") || take("\\cdot") || take("\\times")) {
        const Value next = factor();
        total = next ? Value(*total * *next) : std::nullopt;
      } else if (take("/") || take("\\div")) {
        const Value next = factor();
        total = next ? Value(*total / *next) : std::nullopt;
      } else if (peek() == '\\' || peek() == '(') {  // 2\pi, 3\sqrt{2}, 2(3)
        const Value next = power();
        total = next ? Value(*total * *next) : std::nullopt;
      } else {
        break;
      }
    }
    return total;
  }

  Value factor() {
    double sign = 1.0;
    while (peek() == '-' || peek() == '+') {
      sign = text_[at_++] == '-' ? -sign : sign;
    }
    const Value value = nested([this] { return power(); });
    return value ? Value(sign * *value) : std::nullopt;
  }

  // Limits the depth of recursive rules.
  template <class Rule>
  Value nested(const Rule& rule) {
    if (depth_ == kDeepest) {
      return std::nullopt;
    }
    ++depth_;
    const Value value = rule();
    --depth_;
    return value;
  }

  Value power() {
    Value base = atom();
    if (base && take("^")) {
      const Value exponent = peek() == '{' ? group() : factor();
      base = exponent ? Value(std::pow(*base, *exponent)) : std::nullopt;
    }
    while (base && take("%")) {
      base = *base / 100.0;
    }
    return base;
  }

  Value atom() {
    if (take("\\frac")) {
      const Value top = argument();
      const Value bottom = top ? argument() : std::nullopt;
      return bottom ? Value(*top / *bottom) : std::nullopt;
    }
    if (take("\\sqrt")) {
      double degree = 2.0;
      if (take("[")) {
        const Value given = number();
        if (!given || !take("]")) {
          return std::nullopt;
        }
        degree = *given;
      }
      const Value inside = argument();
      return inside ? Value(std::pow(*inside, 1.0 / degree)) : std::nullopt;
    }
    if (take("\\pi")) {
      return std::numbers::pi;
    }
    if (peek() == '{' || peek() == '(') {
      return group();
    }
    const Value whole = number();
    if (whole && take("\\frac")) {  // a mixed number: 3\frac{1}{2}
      at_ -= std::string_view("\\frac").size();
      const Value part = atom();
      return part ? Value(*whole + *part) : std::nullopt;
    }
    return whole;
  }

  // {...} or (...)
  Value group() {
    const bool braces = take("{");
    if (!braces) {
      take("(");
    }
    const Value inside = nested([this] { return sum(); });
    return take(braces ? "}" : ")") ? inside : std::nullopt;
  }

  // The argument of \frac or \sqrt: a group, a command or a single digit.
  Value argument() {
    if (peek() == '{' || peek() == '\\') {
      return peek() == '{' ? group() : nested([this] { return atom(); });
    }
    if (std::isdigit(static_cast<unsigned char>(peek())) == 0) {
      return std::nullopt;
    }
    return static_cast<double>(text_[at_++] - '0');
  }

  Value number() {
    if (!digit_ahead()) {
      return std::nullopt;
    }
    double value = 0.0;
    const char* begin = text_.data() + at_;
    const auto [end, code] =
        std::from_chars(begin, text_.data() + text_.size(), value, std::chars_format::fixed);
    if (code != std::errc()) {
      return std::nullopt;
    }
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<double> value_of(std::string_view expression) {
  const std::string text = without_thousands(plain_spelling(expression));
  return Parser(text).parse();
}

}  // namespace winnow::answers
