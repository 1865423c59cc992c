// Filters that return numbers.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/filter_tables.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

/// Python allows white space around a number and single underscores inside; else nullopt.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string out;
  const std::string_view inner = strip(text, Ends::both);
  for (std::size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != '_') {
      out += inner[i];
    } else if (i == 0 || i + 1 == inner.size() || std::isalnum(inner[i - 1]) == 0 ||
               std::isalnum(inner[i + 1]) == 0) {
      return std::nullopt;
    }
  }
  return out;
}

template <class Number, class... Format>
std::optional<Number> parse_all(std::string_view digits, Format... format) {
  if (digits.starts_with('+') && !digits.starts_with("+-")) {
    digits.remove_prefix(1);
  }
  Number number{};
  const char* end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, number, format...);
  return error == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

/// int(text, base).
std::optional<std::int64_t> parse_whole(std::string_view text, std::int64_t base) {
  std::optional<std::string> digits = plain_digits(text);
  if (!digits || base < 2 || base > 36) {
    return std::nullopt;
  }
  const std::size_t sign = digits->starts_with('-') || digits->starts_with('+') ? 1 : 0;
  const std::string prefix = to_lower(digits->substr(sign, 2));
  if ((base == 16 && prefix == "0x") || (base == 8 && prefix == "0o") ||
      (base == 2 && prefix == "0b")) {
    digits->erase(sign, 2);
  }
  return parse_all<std::int64_t>(*digits, static_cast<int>(base));
}

/// float(text).
std::optional<double> parse_real(std::string_view text) {
  const std::optional<std::string> digits = plain_digits(text);
  if (!digits || digits->find('(') != std::string::npos) {  // Python rejects nan(...)
    return std::nullopt;
  }
  return parse_all<double>(*digits, std::chars_format::general);
}

std::int64_t truncated(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  require(std::isfinite(value) && value >= -kLimit && value < kLimit,
          "int: the number is too large");
  return static_cast<std::int64_t>(value);
}

Value to_int(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  require_defined(input);
  if (const std::string* text = input.text()) {
    runtime.spend_text(text->size());
    if (const auto whole = parse_whole(*text, bound.integer(1, 10))) {
      return *whole;
    }
    const auto real = parse_real(*text);
    return real && std::isfinite(*real) ? Value(truncated(*real)) : bound.value(0, 0);
  }
  if (const double* real = input.real()) {
    return std::isnan(*real) ? bound.value(0, 0) : Value(truncated(*real));
  }
  if (const bool* b = input.boolean()) {
    return static_cast<std::int64_t>(*b);
  }
  return input.integer() != nullptr ? input : bound.value(0, 0);
}

Value to_float(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  require_defined(input);
  if (const std::string* text = input.text()) {
    runtime.spend_text(text->size());
    const auto real = parse_real(*text);
    return real ? Value(*real) : bound.value(0, 0.0);
  }
  if (const bool* b = input.boolean()) {
    return static_cast<double>(*b);
  }
  if (const std::int64_t* whole = input.integer()) {
    return static_cast<double>(*whole);
  }
  return input.real() != nullptr ? input : bound.value(0, 0.0);
}

Value absolute(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  const Bound none("abs", arguments, {});
  require_defined(input);
  require(input.is_number(), "abs: a {} is no number", type_name(input));
  if (const double* real = input.real()) {
    return std::abs(*real);
  }
  const std::int64_t whole = input.integer() != nullptr ? *input.integer() : *input.boolean();
  require(whole != std::numeric_limits<std::int64_t>::min(), "abs: the integer is too large");
  return std::abs(whole);
}

/// Rounds the exact value to nearest, ties to even, as printing this many digits does.
double round_real(double value, std::int64_t digits) {
  if (!std::isfinite(value)) {
    return value;
  }
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::isinf(unit) ? std::copysign(0.0, value) : std::nearbyint(value / unit) * unit;
  }
  char buffer[512];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed,
                    static_cast<int>(std::min<std::int64_t>(digits, 100)));
  double rounded = value;
  if (error == std::errc()) {
    std::from_chars(buffer, end, rounded);
  }
  return rounded;
}

Value round_whole(std::int64_t value, std::int64_t digits) {
  if (digits >= 0 || value == 0) {
    return value;
  }
  return truncated(round_real(static_cast<double>(value), digits));
}

Value round(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::int64_t digits = bound.integer(0, 0);
  const std::string_view method = bound.text(1).value_or("common");
  require(method == "common" || method == "ceil" || method == "floor",
          "round: the method is common, ceil or floor");
  require_defined(input);
  require(input.is_number(), "round: a {} is no number", type_name(input));
  const bool is_whole = input.real() == nullptr;
  const std::int64_t whole = !is_whole                    ? 0
                             : input.integer() != nullptr ? *input.integer()
                                                          : *input.boolean();
  if (method == "common") {
    return is_whole ? round_whole(whole, digits) : Value(round_real(*input.real(), digits));
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = (is_whole ? static_cast<double>(whole) : *input.real()) * unit;
  require(std::isfinite(scaled), "round: the number is too large");
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

constexpr std::array<NamedFilter, 4> kNumberFilters{
    {{"int", to_int}, {"float", to_float}, {"abs", absolute}, {"round", round}}};

}  // namespace

std::span<const NamedFilter> number_filters() {
  return kNumberFilters;
}

}  // namespace winnow::jinja
