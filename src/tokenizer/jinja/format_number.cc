#include "tokenizer/jinja/format_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace winnow::jinja {
namespace {

constexpr int kMostPrecision = 1000;  // a double's digits beyond these are zeros

bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

NumberText whole_text(std::int64_t value, int base, bool upper, bool alternate) {
  NumberText text;
  text.negative = value < 0;
  const std::uint64_t size =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  switch (base) {
    case 2:
      text.digits = fmt::format("{:b}", size);
      text.prefix = "0b";
      break;
    case 8:
      text.digits = fmt::format("{:o}", size);
      text.prefix = "0o";
      break;
    case 16:
      text.digits = upper ? fmt::format("{:X}", size) : fmt::format("{:x}", size);
      text.prefix = upper ? "0X" : "0x";
      break;
    default:
      text.digits = fmt::format("{}", size);
      break;
  }
  if (!alternate) {
    text.prefix.clear();
  }
  return text;
}

NumberText real_text(double value, char type, int precision, bool upper, bool alternate) {
  require(precision <= kMostPrecision, "a precision of {} is too large; expected at most {}",
          precision, kMostPrecision);
  NumberText text;
  text.negative = std::signbit(value) && !std::isnan(value);
  value = std::abs(value);
  if (!std::isfinite(value)) {
    text.digits = std::isnan(value) ? "nan" : "inf";
  } else if (type == 'e') {
    text.digits = alternate ? fmt::format("{:#.{}e}", value, precision)
                            : fmt::format("{:.{}e}", value, precision);
  } else if (type == 'f') {
    text.digits = alternate ? fmt::format("{:#.{}f}", value, precision)
                            : fmt::format("{:.{}f}", value, precision);
  } else {
    precision = std::max(precision, 1);
    text.digits = alternate ? fmt::format("{:#.{}g}", value, precision)
                            : fmt::format("{:.{}g}", value, precision);
  }
  if (upper) {
    std::ranges::transform(text.digits, text.digits.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
  }
  return text;
}

std::string sign_of(const NumberText& number, char sign) {
  if (number.negative) {
    return "-";
  }
  return sign == '+' || sign == ' ' ? std::string(1, sign) : std::string();
}

std::string grouped(std::string_view digits, char separator, std::size_t size, std::size_t width) {
  const auto end = static_cast<std::size_t>(std::find_if_not(digits.begin(), digits.end(),
                                                             [](char c) {
                                                               return is_decimal(c) ||
                                                                      (c >= 'a' && c <= 'f') ||
                                                                      (c >= 'A' && c <= 'F');
                                                             }) -
                                            digits.begin());
  std::string whole(digits.substr(0, end));
  const std::string_view rest = digits.substr(end);
  const auto length = [&] { return whole.size() + (whole.size() - 1) / size + rest.size(); };
  while (!whole.empty() && length() < width) {
    whole.insert(0, 1, '0');
  }
  std::string out;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (i > 0 && (whole.size() - i) % size == 0) {
      out += separator;
    }
    out += whole[i];
  }
  return out.append(rest);
}

int take_number(std::string_view& text) {
  if (text.empty() || !is_decimal(text.front())) {
    return -1;
  }
  int number = 0;
  while (!text.empty() && is_decimal(text.front())) {
    number = number * 10 + (text.front() - '0');
    require(number <= kMostWidth, "a width is larger than {}", kMostWidth);
    text.remove_prefix(1);
  }
  return number;
}

}  // namespace winnow::jinja
