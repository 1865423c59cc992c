// Sets of characters, as ranges of code points, and their UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow::grammar {

inline constexpr std::uint32_t kLastCodePoint = 0x10FFFF;

struct CodePointRange {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  bool operator==(const CodePointRange&) const = default;
};

/// Ranges in order, none touching another.
using CodePoints = std::vector<CodePointRange>;

/// All characters: surrogates are none.
CodePoints all_code_points();
/// The same set, in order and without overlaps; what is no character is left out.
CodePoints normalized(CodePoints ranges);
CodePoints united(const CodePoints& a, const CodePoints& b);
CodePoints complement(const CodePoints& set);
CodePoints intersection(const CodePoints& a, const CodePoints& b);
bool contains(const CodePoints& set, std::uint32_t code_point);

struct ByteRange {
  std::uint8_t low = 0;
  std::uint8_t high = 0;
};
/// Sequences of byte ranges, each one to four long: together the UTF-8 of the set.
std::vector<std::vector<ByteRange>> utf8_sequences(const CodePoints& set);

/// The characters of a text; malformed UTF-8 is an Error.
std::vector<std::uint32_t> code_points_of(const std::string& text);
std::string utf8_of(std::uint32_t code_point);

}  // namespace winnow::grammar
