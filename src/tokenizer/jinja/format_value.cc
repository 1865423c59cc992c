// format(value, ">10.2f")
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/format_number.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';  // <, >, ^ or =
  char sign = '-';
  bool alternate = false;
  int width = -1;
  char separator = '\0';
  int precision = -1;
  char type = '\0';
};

bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

class SpecReader {
 public:
  explicit SpecReader(std::string_view text) : text_(text) {}

  Spec run() {
    Spec spec;
    const std::size_t fill = text_.empty() ? 0 : utf8_length(text_.front());
    const bool has_fill = fill < text_.size() && is_align(text_[fill]);
    if (has_fill) {
      spec.fill = text_.substr(0, fill);
      spec.align = text_[fill];
      text_.remove_prefix(fill + 1);
    } else if (!text_.empty() && is_align(text_.front())) {
      spec.align = take();
    }
    if (at('+') || at('-') || at(' ')) {
      spec.sign = take();
    }
    spec.alternate = skip('#');
    if (at('0')) {
      if (!has_fill) {
        spec.fill.assign(1, '0');  // GCC 12 warns of an = here
      }
      if (spec.align == '\0') {
        spec.align = '0';  // zeros go after a number's sign
      }
    }
    spec.width = take_number(text_);
    if (at(',') || at('_')) {
      spec.separator = take();
    }
    if (skip('.')) {
      spec.precision = take_number(text_);
      require(spec.precision >= 0, "a format has a point without a precision");
    }
    spec.type = text_.empty() ? '\0' : take();
    require(text_.empty(), "a format ends with '{}', which means nothing", text_);
    return spec;
  }

 private:
  [[nodiscard]] bool at(char c) const { return text_.starts_with(c); }
  char take() {
    const char c = text_.front();
    text_.remove_prefix(1);
    return c;
  }
  bool skip(char c) {
    const bool there = at(c);
    text_.remove_prefix(there ? 1 : 0);
    return there;
  }

  std::string_view text_;
};

/// `before` and `text` with padding around them, or between them.
std::string aligned(Runtime& runtime, const Spec& spec, char align, const std::string& before,
                    const std::string& text) {
  const std::size_t size = count_characters(before) + count_characters(text);
  const auto width = static_cast<std::size_t>(std::max(spec.width, 0));
  const std::size_t gap = width > size ? width - size : 0;
  runtime.spend_text(before.size() + text.size() + gap * spec.fill.size());
  const auto filled = [&](std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
      out += spec.fill;
    }
    return out;
  };
  switch (align) {
    case '<':
      return before + text + filled(gap);
    case '^':
      return filled(gap / 2) + before + text + filled(gap - gap / 2);
    case '=':
      return before + filled(gap) + text;
    default:
      return filled(gap) + before + text;
  }
}

std::string of_text(Runtime& runtime, const Spec& spec, std::string text) {
  require(spec.type == '\0' || spec.type == 's', "a str has no format '{}'", spec.type);
  require(spec.sign == '-' && !spec.alternate && spec.separator == '\0' && spec.align != '=',
          "a sign, a # or a separator is of numbers, not of a str");
  if (spec.precision >= 0) {
    text.resize(bytes_of_characters(text, static_cast<std::size_t>(spec.precision)));
  }
  const bool left = spec.align == '\0' || spec.align == '0';
  return aligned(runtime, spec, left ? '<' : spec.align, "", text);
}

std::string of_number(Runtime& runtime, const Spec& spec, const NumberText& number,
                      std::size_t group) {
  const std::string before = sign_of(number, spec.sign) + number.prefix;
  const bool zeros = spec.align == '0' || (spec.align == '=' && spec.fill == "0");
  std::string digits = number.digits;
  if (spec.separator != '\0') {
    const auto width = static_cast<std::size_t>(std::max(spec.width, 0));
    const std::size_t left = zeros && width > before.size() ? width - before.size() : 0;
    runtime.spend_text(left);
    digits = grouped(digits, spec.separator, group, left);
  }
  const char align = spec.align == '\0' ? '>' : spec.align == '0' ? '=' : spec.align;
  return aligned(runtime, spec, align, before, digits);
}

std::string of_real(Runtime& runtime, const Spec& spec, double value) {
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  const char type = static_cast<char>(upper ? spec.type | 0x20 : spec.type);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  NumberText number;
  switch (type) {
    case 'e':
    case 'f':
    case 'g':
      number = real_text(value, type, precision, upper, spec.alternate);
      break;
    case 'n':
      number = real_text(value, 'g', precision, false, spec.alternate);
      break;
    case '%':
      number = real_text(value * 100, 'f', precision, false, spec.alternate);
      number.digits += '%';
      break;
    case '\0':
      if (spec.precision >= 0) {  // like g, but with a digit after the point
        number = real_text(value, 'g', precision, false, spec.alternate);
        if (number.digits.find_first_of(".enai") == std::string::npos) {
          const bool room = static_cast<int>(number.digits.size()) < std::max(precision, 1);
          number = room ? real_text(value, 'f', 1, false, false)
                        : real_text(value, 'e', std::max(precision - 1, 0), false, false);
        }
      } else {
        number.digits = float_repr(value);
        number.negative = number.digits.starts_with('-');
        number.digits.erase(0, number.negative ? 1 : 0);
      }
      break;
    default:
      fail("a float has no format '{}'", spec.type);
  }
  return of_number(runtime, spec, number, 3);
}

std::string of_whole(Runtime& runtime, const Spec& spec, std::int64_t value) {
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
    case 'b':
    case 'o':
    case 'x':
    case 'X':
      break;
    case 'c': {
      require(value >= 0 && value <= 0x10FFFF && (value < 0xD800 || value > 0xDFFF),
              "{} is no character", value);
      std::string character;
      append_utf8(static_cast<char32_t>(value), character);
      return aligned(runtime, spec, spec.align == '\0' ? '<' : spec.align, "", character);
    }
    default:
      return of_real(runtime, spec, static_cast<double>(value));
  }
  require(spec.precision < 0, "an int has no precision");
  const int base = spec.type == 'b'                       ? 2
                   : spec.type == 'o'                     ? 8
                   : spec.type == 'x' || spec.type == 'X' ? 16
                                                          : 10;
  return of_number(runtime, spec, whole_text(value, base, spec.type == 'X', spec.alternate),
                   base == 10 ? 3 : 4);
}

}  // namespace

std::string format_value(Runtime& runtime, const Value& value, std::string_view spec) {
  if (spec.empty()) {
    return to_text(runtime, value);
  }
  const Spec parsed = SpecReader(spec).run();
  if (value.text() != nullptr) {
    runtime.spend_text(value.text()->size());
    return of_text(runtime, parsed, *value.text());
  }
  if (const double* number = value.real()) {
    return of_real(runtime, parsed, *number);
  }
  require(value.is_number(), "a {} has no format '{}'", type_name(value), spec);
  return of_whole(
      runtime, parsed,
      value.integer() != nullptr ? *value.integer() : static_cast<std::int64_t>(*value.boolean()));
}

}  // namespace winnow::jinja
