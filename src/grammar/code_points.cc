#include "grammar/code_points.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace winnow::grammar {
namespace {

constexpr CodePointRange kSurrogates{0xD800, 0xDFFF};
// The largest code points with encodings of one to four bytes.
constexpr std::array<std::uint32_t, 4> kLastOfLength{0x7F, 0x7FF, 0xFFFF, kLastCodePoint};

// Splits a range of code points with encodings of one length into products of byte ranges: after a
// byte that varies, all continuation bytes must be possible.
void add_sequences(std::uint32_t low, std::uint32_t high, int length,
                   std::vector<std::vector<ByteRange>>& sequences) {
  for (int i = 1; i < length; ++i) {
    const std::uint32_t mask = (1U << (6 * i)) - 1;
    if ((low & ~mask) != (high & ~mask)) {
      if ((low & mask) != 0) {
        add_sequences(low, low | mask, length, sequences);
        add_sequences((low | mask) + 1, high, length, sequences);
        return;
      }
      if ((high & mask) != mask) {
        add_sequences(low, (high & ~mask) - 1, length, sequences);
        add_sequences(high & ~mask, high, length, sequences);
        return;
      }
    }
  }
  const std::string first = utf8_of(low);
  const std::string last = utf8_of(high);
  std::vector<ByteRange> bytes;
  for (std::size_t i = 0; i < first.size(); ++i) {
    bytes.push_back({static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i])});
  }
  sequences.push_back(std::move(bytes));
}

}  // namespace

CodePoints all_code_points() {
  return {{0, kSurrogates.low - 1}, {kSurrogates.high + 1, kLastCodePoint}};
}

CodePoints normalized(CodePoints ranges) {
  std::ranges::sort(ranges, {}, &CodePointRange::low);
  CodePoints merged;
  for (const CodePointRange& range : ranges) {
    if (!merged.empty() && range.low <= merged.back().high + 1) {
      merged.back().high = std::max(merged.back().high, range.high);
    } else {
      merged.push_back(range);
    }
  }
  return intersection(merged, all_code_points());
}

CodePoints united(const CodePoints& a, const CodePoints& b) {
  CodePoints both = a;
  both.insert(both.end(), b.begin(), b.end());
  return normalized(std::move(both));
}

CodePoints complement(const CodePoints& set) {
  CodePoints gaps;
  std::uint32_t next = 0;
  for (const CodePointRange& range : set) {
    if (range.low > next) {
      gaps.push_back({next, range.low - 1});
    }
    next = range.high + 1;
  }
  if (next <= kLastCodePoint) {
    gaps.push_back({next, kLastCodePoint});
  }
  return intersection(gaps, all_code_points());
}

CodePoints intersection(const CodePoints& a, const CodePoints& b) {
  CodePoints common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::uint32_t low = std::max(a[i].low, b[j].low);
    const std::uint32_t high = std::min(a[i].high, b[j].high);
    if (low <= high) {
      common.push_back({low, high});
    }
    a[i].high < b[j].high ? ++i : ++j;
  }
  return common;
}

bool contains(const CodePoints& set, std::uint32_t code_point) {
  return std::ranges::any_of(set, [code_point](const CodePointRange& range) {
    return range.low <= code_point && code_point <= range.high;
  });
}

std::vector<std::vector<ByteRange>> utf8_sequences(const CodePoints& set) {
  std::vector<std::vector<ByteRange>> sequences;
  for (const CodePointRange& range : set) {
    std::uint32_t low = range.low;
    for (int length = 1; length <= 4 && low <= range.high; ++length) {
      const std::uint32_t last = kLastOfLength[static_cast<std::size_t>(length - 1)];
      if (low <= last) {
        add_sequences(low, std::min(range.high, last), length, sequences);
        low = last + 1;
      }
    }
  }
  return sequences;
}

std::vector<std::uint32_t> code_points_of(const std::string& text) {
  std::vector<std::uint32_t> code_points;
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    require(i + length <= text.size() && (first < 0x80 || first >= 0xC2), "text is not UTF-8");
    std::uint32_t code_point = length == 1 ? first : first & (0x7FU >> length);
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      require((next & 0xC0) == 0x80, "text is not UTF-8");
      code_point = code_point << 6 | (next & 0x3FU);
    }
    code_points.push_back(code_point);
    i += length;
  }
  return code_points;
}

std::string utf8_of(std::uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    return {static_cast<char>(c)};
  }
  if (c < 0x800) {
    return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  }
  if (c < 0x10000) {
    return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  }
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

}  // namespace winnow::grammar
