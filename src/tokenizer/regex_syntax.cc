#include "tokenizer/regex_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/unicode_tables.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

// \w in a class; outside of one, Oniguruma's also contains all numbers of Latin-1.
std::string word_members(bool in_class) {
  return fmt::format("\\p{{Alphabetic}}\\p{{M}}\\p{{Nd}}\\p{{Pc}}{}{}{}{}", newer_members("L"),
                     newer_members("M"), newer_members("Nd"),
                     in_class ? "" : "\\xB2\\xB3\\xB9\\xBC-\\xBE");
}

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// The general categories, except those with unassigned code points: they shrink.
bool is_category(std::string_view name) {
  constexpr std::array<std::string_view, 33> kCategories{
      "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",
      "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
      "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Co"};
  return std::ranges::find(kCategories, name) != kCategories.end();
}

bool is_ascii_mark(char c) {
  return std::ispunct(static_cast<unsigned char>(c)) != 0 && static_cast<unsigned char>(c) < 0x80;
}

bool are_hex(std::string_view digits) {
  return !digits.empty() &&
         std::ranges::all_of(digits, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// {n}, {n,} or {n,m} at the beginning of `text`: its length, 0 for anything else.
std::size_t interval_length(std::string_view text) {
  std::size_t at = 1;
  const auto digits = [&] {
    const std::size_t from = at;
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) {
      ++at;
    }
    return at - from;
  };
  const std::size_t low = digits();
  if (low == 0 || low > 3) {
    return 0;
  }
  if (at < text.size() && text[at] == ',') {
    ++at;
    if (digits() > 3) {
      return 0;
    }
  }
  return at < text.size() && text[at] == '}' ? at + 1 : 0;
}

// Copies a pattern as long as it contains only syntax that both libraries read alike, or that can
// be translated for PCRE2.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::optional<std::string> run() {
    while (certain_ && at_ < pattern_.size()) {
      step();
    }
    return certain_ && groups_.empty() ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  enum class Group : std::uint8_t { plain, look, caseless };
  // The element that a quantifier here would apply to.
  enum class Before : std::uint8_t { nothing, atom, group };

  [[nodiscard]] std::string_view rest() const { return pattern_.substr(at_); }
  [[nodiscard]] bool at(std::string_view text) const { return rest().starts_with(text); }
  [[nodiscard]] bool is_caseless() const {
    return std::ranges::find(groups_, Group::caseless) != groups_.end();
  }
  void give_up() { certain_ = false; }
  void copy(std::size_t length) {
    out_ += rest().substr(0, length);
    at_ += length;
  }
  void replace(std::size_t length, std::string_view with) {
    out_ += with;
    at_ += length;
  }

  void step() {
    const char literal_before = std::exchange(literal_, '\0');
    switch (pattern_[at_]) {
      case '\\':
        is_caseless() ? give_up() : escape();
        break;
      case '[':
        is_caseless() ? give_up() : begin_class();
        break;
      case '(':
        open_group();
        break;
      case ')':
        close_group();
        break;
      case '|':
      case '^':
      case '$':
        copy(1);
        before_ = Before::nothing;
        break;
      case '*':
      case '+':
      case '?':
      case '{':
        quantifier();
        break;
      default:
        literal(literal_before);
    }
  }

  // With case ignored, Oniguruma also matches some letter pairs as one character (ss and ß).
  void literal(char literal_before) {
    const std::size_t length = utf8_length(pattern_[at_]);
    if (is_caseless()) {
      const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(pattern_[at_])));
      const std::string pair{literal_before, lower};
      constexpr std::array<std::string_view, 5> kPairs{"ss", "ff", "fi", "fl", "st"};
      if (length > 1 || std::ranges::find(kPairs, pair) != kPairs.end()) {
        return give_up();
      }
      literal_ = lower;
    }
    copy(length);
    before_ = Before::atom;
  }

  void open_group() {
    constexpr std::array<std::pair<std::string_view, Group>, 7> kOpenings{
        {{"(?:", Group::plain},
         {"(?>", Group::plain},
         {"(?=", Group::look},
         {"(?!", Group::look},
         {"(?<=", Group::look},
         {"(?<!", Group::look},
         {"(?i:", Group::caseless}}};
    const auto* opening =
        std::ranges::find_if(kOpenings, [&](const auto& entry) { return at(entry.first); });
    if (is_caseless()) {
      return give_up();
    }
    if (opening != kOpenings.end()) {
      groups_.push_back(opening->second);
      copy(opening->first.size());
    } else if (at("(?") || at("(*")) {
      return give_up();
    } else {
      groups_.push_back(Group::plain);
      copy(1);
    }
    before_ = Before::nothing;
  }

  void close_group() {
    if (groups_.empty()) {
      return give_up();
    }
    before_ = groups_.back() == Group::look ? Before::nothing : Before::group;
    groups_.pop_back();
    copy(1);
  }

  // After groups only ?: the libraries differ in how a loop over an empty match ends.
  void quantifier() {
    const bool optional = at("?");
    const bool interval = at("{");
    const std::size_t length = interval ? interval_length(rest()) : 1;
    if (length == 0 || before_ == Before::nothing || (before_ == Before::group && !optional)) {
      return give_up();
    }
    const bool exact = interval && rest().substr(0, length).find(',') == std::string_view::npos;
    copy(length);
    if (at("+") || at("?")) {  // in Oniguruma, {n,m}+ is not possessive and {n}? not lazy
      (interval && at("+")) || exact ? give_up() : copy(1);
    }
    before_ = Before::nothing;
  }

  // Copies a character written by a name that both libraries have; false if there is none here.
  bool copy_character() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (std::string_view("nrtfae").find(c) != std::string_view::npos || is_ascii_mark(c)) {
      copy(2);
      return true;
    }
    if (c == 'u' && are_hex(rest().substr(2, 4)) && rest().size() >= 6) {
      replace(6, fmt::format("\\x{{{}}}", rest().substr(2, 4)));
      return true;
    }
    const std::size_t end = at("\\x{") ? pattern_.find('}', at_) : std::string_view::npos;
    if (end != std::string_view::npos && are_hex(pattern_.substr(at_ + 3, end - at_ - 3))) {
      copy(end + 1 - at_);
      return true;
    }
    const bool ascii = c == 'x' && rest().size() >= 4 && are_hex(rest().substr(2, 2)) &&
                       rest()[2] < '8';  // others are bytes in Oniguruma
    copy(ascii ? 4 : 0);
    return ascii;
  }

  // \s, \w, \d, \p{...} and their negations; false if there is none here.
  bool copy_set() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (c) {
      case 's':
      case 'S':
        replace(2, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
        return true;
      case 'w':
      case 'W':
        put_set(2, word_members(in_class_), c == 'W');
        return true;
      case 'd':
      case 'D':
        put_set(2, fmt::format("\\p{{Nd}}{}", newer_members("Nd")), c == 'D');
        return true;
      case 'p':
      case 'P':
        return property(c == 'P');
      default:
        return false;
    }
  }

  // PCRE2 has no nested classes: inside a class, only sets without brackets can be negated.
  void put_set(std::size_t length, std::string_view list, bool negated) {
    if (in_class_ && negated) {
      return give_up();
    }
    replace(length,
            in_class_ ? std::string(list) : fmt::format("[{}{}]", negated ? "^" : "", list));
  }

  // \p{name}, \P{name} or \p{^name}.
  bool property(bool negated) {
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos || rest().substr(2, 1) != "{") {
      return false;
    }
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::string script = fmt::format("sc:{}", name);
    const bool is_script = name.size() > 2 && compiles(fmt::format("\\p{{{}}}", script));
    if (!is_category(name) && !is_script) {
      return false;
    }
    const std::size_t length = end + 1 - at_;
    const std::string_view newer = newer_members(name);
    if (newer.empty()) {
      replace(length, fmt::format("\\{}{{{}}}", negated ? 'P' : 'p',
                                  is_script ? script : std::string(name)));
    } else {
      put_set(length, fmt::format("\\p{{{}}}{}", name, newer), negated);
    }
    return true;
  }

  void escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (c == 'A' || c == 'z' || c == 'Z') {
      copy(2);
      before_ = Before::nothing;
    } else if (copy_set() || copy_character()) {
      before_ = Before::atom;
    } else {
      give_up();
    }
  }

  void begin_class() {
    in_class_ = true;
    copy(1);
    copy(at("^") ? 1 : 0);
    bool may_begin_range = false;  // a single character precedes
    bool first = true;
    while (certain_ && at_ < pattern_.size() && (!at("]") || first)) {
      if (at("]") || at("[") || at("&&")) {
        return give_up();
      }
      may_begin_range = at("-") ? hyphen(first, may_begin_range) : member();
      first = false;
    }
    at("]") ? copy(1) : give_up();
    in_class_ = false;
    before_ = Before::atom;
  }

  // Copies a member of a class; returns whether it was a single character.
  bool member() {
    if (!at("\\")) {
      copy(utf8_length(pattern_[at_]));
      return true;
    }
    if (copy_set()) {
      return false;
    }
    if (!copy_character()) {
      give_up();
    }
    return true;
  }

  // A literal at the ends of the class, else a range between two characters.
  bool hyphen(bool first, bool may_begin_range) {
    const bool last = rest().substr(1, 1) == "]";
    copy(1);
    if (first || last) {
      return false;
    }
    if (!may_begin_range || at("[") || !member()) {
      give_up();
    }
    return false;
  }

  std::string_view pattern_;
  std::string out_;
  std::size_t at_ = 0;
  bool certain_ = true;
  bool in_class_ = false;
  Before before_ = Before::nothing;
  char literal_ = '\0';  // the previous letter, if case is ignored
  std::vector<Group> groups_;
};

}  // namespace

std::optional<std::string> to_pcre2_syntax(std::string_view pattern) {
  return is_valid_utf8(pattern) ? Translator(pattern).run() : std::nullopt;
}

}  // namespace winnow
