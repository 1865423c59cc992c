#include "grammar/regex_parser.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"

namespace winnow::grammar {

// A character of a pattern. The pattern is copied only for a message, not for each check that
// passes.
struct RegexPlace {
  std::string_view pattern;
  std::size_t character;
};

}  // namespace winnow::grammar

template <>
struct fmt::formatter<winnow::grammar::RegexPlace> : fmt::formatter<std::string> {
  auto format(const winnow::grammar::RegexPlace& place, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(
        fmt::format("pattern {}, character {}", place.pattern, place.character), context);
  }
};

namespace winnow::grammar {
namespace {

constexpr int kMostRepeats = 1 << 16;
constexpr int kMostGroups = 128;

const CodePoints kDigits{{'0', '9'}};
const CodePoints kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpaces{{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680},
                         {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                         {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePoints kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class RegexParser {
 public:
  RegexParser(std::string_view pattern, RegexMatch match)
      : pattern_(pattern), text_(code_points_of(std::string(pattern))), match_(match) {}

  ExpressionPtr parse() {
    ExpressionPtr whole = alternatives(/*outermost=*/true);
    require(at_end(), "{} ends a group that was not begun", where());
    return whole;
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
  [[nodiscard]] bool sees(std::uint32_t c) const { return !at_end() && text_[at_] == c; }
  bool take(std::uint32_t c) {
    if (!sees(c)) {
      return false;
    }
    ++at_;
    return true;
  }
  [[nodiscard]] RegexPlace where() const { return {pattern_, at_ + 1}; }
  std::uint32_t next() {
    require(!at_end(), "{}: it ends too soon", where());
    return text_[at_++];
  }

  ExpressionPtr alternatives(bool outermost) {
    require(++depth_ <= kMostGroups, "{}: more than {} groups in one another", where(),
            kMostGroups);
    std::vector<ExpressionPtr> parts;
    do {
      parts.push_back(branch(outermost));
    } while (take('|'));
    --depth_;
    return choice(std::move(parts));
  }

  // One alternative. Only the outermost ones may have anchors.
  ExpressionPtr branch(bool outermost) {
    const bool tied_to_begin = outermost && take('^');
    std::vector<ExpressionPtr> parts;
    bool tied_to_end = false;
    while (!at_end() && !sees('|') && !sees(')')) {
      require(!tied_to_end, "{}: something follows $", where());
      if (outermost && take('$')) {
        tied_to_end = true;
        continue;
      }
      require(!sees('^') && !sees('$'), "{}: ^ and $ stand only where the text begins and ends",
              where());
      parts.push_back(quantified(atom()));
    }
    const auto anything = [] { return repeat(characters(all_code_points()), 0, -1); };
    if (outermost && match_ == RegexMatch::anywhere && !tied_to_begin) {
      parts.insert(parts.begin(), anything());
    }
    if (outermost && match_ == RegexMatch::anywhere && !tied_to_end) {
      parts.push_back(anything());
    }
    return parts.empty() ? nothing() : sequence(std::move(parts));
  }

  ExpressionPtr quantified(ExpressionPtr part) {
    for (bool first = true;; first = false) {
      int least = 0;
      int most = -1;
      if (take('*')) {
      } else if (take('+')) {
        least = 1;
      } else if (take('?')) {
        most = 1;
      } else if (!counts(least, most)) {
        return part;
      }
      require(first, "{}: nothing to repeat", where());
      require(!sees('+'), "{}: possessive quantifiers are not supported", where());
      take('?');  // lazy quantifiers match the same texts
      part = repeat(std::move(part), least, most);
    }
  }

  // Parses {m}, {m,} or {m,n}. Any other brace is a character.
  bool counts(int& least, int& most) {
    const std::size_t begin = at_;
    if (!take('{')) {
      return false;
    }
    const auto first = integer();
    const bool comma = take(',');
    const auto second = comma ? integer() : first;
    if ((!first && !second) || !take('}')) {
      at_ = begin;
      return false;
    }
    least = first.value_or(0);
    most = second.value_or(-1);
    require(most < 0 || least <= most, "{}: {} is more than {}", where(), least, most);
    return true;
  }

  std::optional<int> integer() {
    int value = 0;
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = value * 10 + static_cast<int>(text_[at_++] - '0');
      require(value <= kMostRepeats, "{}: more than {} times", where(), kMostRepeats);
    }
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  ExpressionPtr atom() {
    const std::uint32_t c = next();
    switch (c) {
      case '(':
        return group();
      case '[':
        return characters(char_class());
      case '.':
        return characters(complement(kLineEnds));
      case '\\':
        return characters(escape(/*in_class=*/false));
      case '*':
      case '+':
      case '?':
        --at_;
        fail("{}: nothing to repeat", where());
      default:
        return bytes(utf8_of(c));
    }
  }

  ExpressionPtr group() {
    if (take('?')) {
      if (take(':')) {
      } else if (take('P') || sees('<')) {
        require(take('<') && !sees('=') && !sees('!'),
                "{}: lookbehind and references to groups are not supported", where());
        while (!take('>')) {
          next();
        }
      } else {
        fail("{}: lookahead and flags are not supported", where());
      }
    }
    ExpressionPtr inner = alternatives(/*outermost=*/false);
    require(take(')'), "{}: a group is not ended", where());
    return inner;
  }

  CodePoints char_class() {
    const bool negated = take('^');
    CodePoints set;
    for (bool first = true; first || !sees(']'); first = false) {
      if (first && sees(']')) {
        break;  // ECMA allows an empty class
      }
      const CodePoints low = class_member();
      if (!sees('-') || (at_ + 1 < text_.size() && text_[at_ + 1] == ']')) {
        set = united(set, low);
        continue;
      }
      ++at_;
      const CodePoints high = class_member();
      require(is_one(low) && is_one(high) && low[0].low <= high[0].low,
              "{}: not a range of characters", where());
      set = united(set, {{low[0].low, high[0].low}});
    }
    require(take(']'), "{}: a class is not ended", where());
    return negated ? complement(set) : set;
  }

  static bool is_one(const CodePoints& set) { return set.size() == 1 && set[0].low == set[0].high; }

  CodePoints class_member() {
    const std::uint32_t c = next();
    require(c != '[' || !sees(':'), "{}: POSIX classes are not supported", where());
    return c == '\\' ? escape(/*in_class=*/true) : CodePoints{{c, c}};
  }

  std::uint32_t hexadecimal(int digits) {
    std::uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const std::uint32_t c = next();
      require(c < 0x80 && std::isxdigit(static_cast<int>(c)) != 0,
              "{}: expected {} hexadecimal digits", where(), digits);
      value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20U) - 'a' + 10);
    }
    return value;
  }

  std::uint32_t unicode_escape() {
    if (take('{')) {
      std::uint32_t value = 0;
      do {
        value = value * 16 + hexadecimal(1);
        require(value <= kLastCodePoint, "{}: no character", where());
      } while (!take('}'));
      return value;
    }
    const std::uint32_t high = hexadecimal(4);
    if (high < 0xD800 || high > 0xDBFF) {
      return high;
    }
    require(take('\\') && take('u'), "{}: half a surrogate pair", where());
    const std::uint32_t low = hexadecimal(4);
    require(low >= 0xDC00 && low <= 0xDFFF, "{}: half a surrogate pair", where());
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  CodePoints escape(bool in_class) {
    const std::uint32_t c = next();
    const auto one = [](std::uint32_t code_point) { return CodePoints{{code_point, code_point}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return complement(kWord);
      case 's':
        return kSpaces;
      case 'S':
        return complement(kSpaces);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'x':
        return one(hexadecimal(2));
      case 'u':
        return one(unicode_escape());
      case 'c':
        return one(next() % 32);
      case 'b':
        require(in_class, "{}: word boundaries are not supported", where());
        return one('\b');
      default:
        break;
    }
    require(c >= 0x80 || std::isalnum(static_cast<int>(c)) == 0, "{}: \\{} is not supported",
            where(), utf8_of(c));
    return one(c);
  }

  std::string_view pattern_;
  std::vector<std::uint32_t> text_;
  RegexMatch match_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

ExpressionPtr parse_regex(std::string_view pattern, RegexMatch match) {
  return RegexParser(pattern, match).parse();
}

}  // namespace winnow::grammar
