// "%s: %d" % ("a", 1)
#include <cmath>
#include <optional>

#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/format_number.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

struct Conversion {
  bool left = false, zero = false, alternate = false;
  char sign = '-';
  int width = -1;
  int precision = -1;
  char type = '\0';
};

class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, std::string_view format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {
    const Sequence* sequence = arguments.sequence();
    if (sequence != nullptr && sequence->kind == Sequence::Kind::tuple) {
      positional_ = sequence->items;
    } else {
      positional_ = {arguments};
    }
  }

  std::string run() {
    while (!format_.empty()) {
      const std::size_t percent = format_.find('%');
      add(format_.substr(0, percent));
      format_.remove_prefix(std::min(percent, format_.size()));
      if (!format_.empty()) {
        convert();
      }
    }
    // Not every argument has to be used if it supports lookup: a dict, and in Python a list, too.
    const Sequence* list = arguments_.sequence();
    const bool has_entries =
        arguments_.mapping() != nullptr || (list != nullptr && list->kind == Sequence::Kind::list);
    require(next_ >= positional_.size() || by_name_ || has_entries,
            "not all arguments are used by the format");
    return std::move(out_);
  }

 private:
  void add(std::string_view text) {
    runtime_.spend_text(text.size());
    out_ += text;
    require(out_.size() <= Runtime::kMaxText, "a string is longer than {} bytes",
            Runtime::kMaxText);
  }

  char take() {
    require(!format_.empty(), "a format ends within a %");
    const char c = format_.front();
    format_.remove_prefix(1);
    return c;
  }

  Value next() {
    require(next_ < positional_.size(), "the format wants more arguments than there are");
    return positional_[next_++];
  }

  /// Reads (name), if it is next: returns that entry of the dict.
  std::optional<Value> named() {
    if (!format_.starts_with('(')) {
      return std::nullopt;
    }
    int open = 0;
    std::size_t end = 0;
    do {
      require(end < format_.size(), "a format has a ( without )");
      open += format_[end] == '(' ? 1 : format_[end] == ')' ? -1 : 0;
      ++end;
    } while (open > 0);
    const std::string_view name = format_.substr(1, end - 2);
    require(arguments_.mapping() != nullptr, "the format names '{}', but is given no dict", name);
    const Value* found = arguments_.mapping()->find(name);
    require(found != nullptr, "the format names '{}', which the dict does not have", name);
    format_.remove_prefix(end);
    by_name_ = true;
    return *found;
  }

  void flags(Conversion& conversion) {
    for (;; format_.remove_prefix(1)) {
      const char c = format_.empty() ? '\0' : format_.front();
      if (c == '-') {
        conversion.left = true;
      } else if (c == '0') {
        conversion.zero = true;
      } else if (c == '#') {
        conversion.alternate = true;
      } else if (c == '+' || (c == ' ' && conversion.sign != '+')) {
        conversion.sign = c;
      } else if (c != ' ') {
        return;
      }
    }
  }

  /// Reads digits, or * for the next argument; -1 if there is neither.
  int number() {
    if (!format_.starts_with('*')) {
      return take_number(format_);
    }
    format_.remove_prefix(1);
    const Value value = next();
    require(value.integer() != nullptr, "* wants an int, not a {}", type_name(value));
    require(std::abs(*value.integer()) <= kMostWidth, "a width is larger than {}", kMostWidth);
    return static_cast<int>(*value.integer());
  }

  void convert() {
    format_.remove_prefix(1);
    const std::optional<Value> entry = named();
    Conversion conversion;
    flags(conversion);
    conversion.width = number();
    if (conversion.width < -1) {
      conversion.left = true;
      conversion.width = -conversion.width;
    }
    if (format_.starts_with('.')) {
      format_.remove_prefix(1);
      conversion.precision = std::max(number(), 0);
    }
    while (format_.starts_with('h') || format_.starts_with('l') || format_.starts_with('L')) {
      format_.remove_prefix(1);
    }
    conversion.type = take();
    if (conversion.type == '%') {
      add("%");
    } else {
      put(conversion, entry ? *entry : next());
    }
  }

  void put(const Conversion& conversion, const Value& value) {
    switch (conversion.type) {
      case 's':
      case 'r':
      case 'a':
      case 'c':
        return pad(conversion, "", text_of(conversion, value), false);
      case 'd':
      case 'i':
      case 'u':
        return put_number(conversion, whole_text(truncated(value), 10, false, false));
      case 'x':
      case 'X':
      case 'o':
        return put_number(conversion, whole_text(whole(value), conversion.type == 'o' ? 8 : 16,
                                                 conversion.type == 'X', conversion.alternate));
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const char type = static_cast<char>(conversion.type | 0x20);
        const int precision = conversion.precision < 0 ? 6 : conversion.precision;
        Conversion rest = conversion;
        rest.precision = -1;
        return put_number(rest, real_text(real(value), type, precision, type != conversion.type,
                                          conversion.alternate));
      }
      default:
        fail("a format has no conversion '%{}'", conversion.type);
    }
  }

  std::string text_of(const Conversion& conversion, const Value& value) {
    if (conversion.type == 'c') {
      return character(value);
    }
    std::string text = conversion.type == 's' ? to_text(runtime_, value) : repr(runtime_, value);
    if (conversion.type == 'a') {
      text = ascii(text);
    }
    if (conversion.precision >= 0) {
      text.resize(bytes_of_characters(text, static_cast<std::size_t>(conversion.precision)));
    }
    return text;
  }

  static std::string character(const Value& value) {
    if (value.text() != nullptr && count_characters(*value.text()) == 1) {
      return *value.text();
    }
    require(value.integer() != nullptr && *value.integer() >= 0 && *value.integer() <= 0x10FFFF &&
                (*value.integer() < 0xD800 || *value.integer() > 0xDFFF),
            "%c wants a character, not this {}", type_name(value));
    std::string text;
    append_utf8(static_cast<char32_t>(*value.integer()), text);
    return text;
  }

  static std::int64_t whole(const Value& value) {
    require_defined(value);
    require(value.integer() != nullptr || value.boolean() != nullptr,
            "a format wants an int, not a {}", type_name(value));
    return value.integer() != nullptr ? *value.integer() : *value.boolean();
  }

  static std::int64_t truncated(const Value& value) {
    if (const double* number = value.real()) {
      constexpr double kLimit = 9223372036854775808.0;  // 2^63
      require(std::abs(*number) < kLimit, "a number is too large for %d");
      return static_cast<std::int64_t>(*number);
    }
    return whole(value);
  }

  static double real(const Value& value) {
    return value.real() != nullptr ? *value.real() : static_cast<double>(whole(value));
  }

  void put_number(const Conversion& conversion, NumberText number) {
    const auto least = static_cast<std::size_t>(std::max(conversion.precision, 0));
    if (number.digits.size() < least) {
      number.digits.insert(0, least - number.digits.size(), '0');
    }
    pad(conversion, sign_of(number, conversion.sign) + number.prefix, number.digits,
        conversion.zero && !conversion.left);
  }

  void pad(const Conversion& conversion, const std::string& before, const std::string& text,
           bool zeros) {
    const std::size_t size = count_characters(before) + count_characters(text);
    const auto width = static_cast<std::size_t>(std::max(conversion.width, 0));
    const std::string padding(width > size ? width - size : 0, zeros ? '0' : ' ');
    if (conversion.left) {
      add(before + text + padding);
    } else {
      add(zeros ? before + padding + text : padding + before + text);
    }
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& arguments_;
  std::vector<Value> positional_;
  std::size_t next_ = 0;
  bool by_name_ = false;
  std::string out_;
};

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view format, const Value& arguments) {
  return PercentFormat(runtime, format, arguments).run();
}

}  // namespace winnow::jinja
