// Numbers in Python's formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow::jinja {

/// A number as text, with a separate sign: padding goes between the two.
struct NumberText {
  bool negative = false;
  std::string prefix{};  // "0x" and the like
  std::string digits{};  // and what follows them
};

/// `base`: 2, 8, 10 or 16. `alternate`: with a prefix.
NumberText whole_text(std::int64_t value, int base, bool upper, bool alternate);
/// `type`: e, f or g; `alternate`: keeps the point, and with g the zeros after it.
NumberText real_text(double value, char type, int precision, bool upper, bool alternate);

/// "+", " ", "-" or empty: the text before a number. `sign`: '+', ' ' or '-'.
std::string sign_of(const NumberText& number, char sign);
/// The digits before the point in groups of `size`, with leading zeros so that they have at least
/// `width` characters together with the text after them.
std::string grouped(std::string_view digits, char separator, std::size_t size, std::size_t width);

/// The maximum of a width or a precision.
inline constexpr int kMostWidth = 1'000'000;
/// Removes the digits of a width or precision from `text`'s beginning; -1 if there are none.
int take_number(std::string_view& text);

}  // namespace winnow::jinja
