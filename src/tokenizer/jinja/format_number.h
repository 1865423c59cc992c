// Numbers as Python's formats write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow::jinja {

/// A number as text, its sign apart: padding goes between the two.
struct NumberText {
  bool negative = false;
  std::string prefix{};  // "0x" and the like
  std::string digits{};  // and what follows them
};

/// `base`: 2, 8, 10 or 16. `alternate`: with a prefix.
NumberText whole_text(std::int64_t value, int base, bool upper, bool alternate);
/// `type`: e, f or g; `alternate`: the point stays, and with g the zeros behind it.
NumberText real_text(double value, char type, int precision, bool upper, bool alternate);

/// "+", " ", "-" or nothing: what stands before a number. `sign`: '+', ' ' or '-'.
std::string sign_of(const NumberText& number, char sign);
/// The digits before the point in groups of `size`, at least so many of them, zeros in front, that
/// they are `width` characters with what follows.
std::string grouped(std::string_view digits, char separator, std::size_t size, std::size_t width);

/// The most that a width or a precision may be.
inline constexpr int kMostWidth = 1'000'000;
/// The digits of a width or precision at `text`'s beginning, taken off it; -1 without any.
int take_number(std::string_view& text);

}  // namespace winnow::jinja
