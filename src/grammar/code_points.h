// Sets of characters as ranges of code points, and their UTF-8 encodings.
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

/// Sorted ranges that neither overlap nor touch.
using CodePoints = std::vector<CodePointRange>;

/// All characters, without surrogates.
CodePoints all_code_points();
/// The same set, sorted and without overlaps; drops values that are not characters.
CodePoints normalized(CodePoints ranges);
CodePoints united(const CodePoints& a, const CodePoints& b);
CodePoints complement(const CodePoints& set);
CodePoints intersection(const CodePoints& a, const CodePoints& b);
bool contains(const CodePoints& set, std::uint32_t code_point);

struct ByteRange {
  std::uint8_t low = 0;
  std::uint8_t high = 0;
};
/// Sequences of one to four byte ranges; together they are the UTF-8 encodings of the set.
std::vector<std::vector<ByteRange>> utf8_sequences(const CodePoints& set);

/// The characters of a text. Throws Error for malformed UTF-8.
std::vector<std::uint32_t> code_points_of(const std::string& text);
std::string utf8_of(std::uint32_t code_point);

}  // namespace winnow::grammar
