#include "tokenizer/regex_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "base/error.h"
#include "tokenizer/unicode_tables.h"

namespace winnow {
namespace {

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      step();
    }
    return std::move(out_);
  }

 private:
  void step() {
    const char c = pattern_[at_];
    if (c == '\\') {
      escape();
    } else if (in_class_) {
      class_member(c);
    } else {
      in_class_ = c == '[';
      class_begin_ = in_class_;
      copy(1);
    }
  }

  void class_member(char c) {
    const bool first = std::exchange(class_begin_, c == '^' && class_begin_);
    if (pattern_.substr(at_, 2) == "[:") {
      const std::size_t end = pattern_.find(":]", at_);
      require(end != std::string_view::npos, "{}: [: without :] in the regular expression", where_);
      copy(end + 2 - at_);
      return;
    }
    require(c != '[' && pattern_.substr(at_, 2) != "&&",
            "{}: not supported in a regular expression: {} inside a character class", where_,
            c == '[' ? "a class" : "an intersection (&&)");
    in_class_ = c != ']' || first;
    copy(1);
  }

  void escape() {
    class_begin_ = false;
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (c) {
      case 's':
      case 'S':
        replace(2, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
        break;
      case 'w':
        replace(2, members("\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"));
        break;
      case 'W':
        require(!in_class_, "{}: not supported in a regular expression: \\W inside a class",
                where_);
        replace(2, "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]");
        break;
      case 'h':
      case 'H':
        fail("{}: not supported in a regular expression: \\{}", where_, c);
      case 'p':
      case 'P':
        property(c == 'P');
        break;
      default:
        copy(2);
    }
  }

  // \p{name}, \P{name} or \p{^name}.
  void property(bool negated) {
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos || pattern_.substr(at_ + 2, 1) != "{") {
      copy(2);
      return;
    }
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::size_t length = end + 1 - at_;
    const std::string_view newer = newer_members(name);
    if (newer.empty() || (negated && in_class_)) {
      replace(length, fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', script_or(name)));
    } else if (negated) {
      replace(length, fmt::format("[^\\p{{{}}}{}]", name, newer));
    } else {
      replace(length, members(fmt::format("\\p{{{}}}{}", name, newer)));
    }
  }

  static std::string script_or(std::string_view name) {
    std::string script = fmt::format("sc:{}", name);
    return name.size() > 2 && compiles(fmt::format("\\p{{{}}}", script)) ? script
                                                                         : std::string(name);
  }

  [[nodiscard]] std::string members(std::string_view list) const {
    return in_class_ ? std::string(list) : fmt::format("[{}]", list);
  }

  void copy(std::size_t length) {
    out_ += pattern_.substr(at_, length);
    at_ += length;
  }
  void replace(std::size_t length, std::string_view with) {
    out_ += with;
    at_ += length;
  }

  std::string_view pattern_;
  std::string_view where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  bool class_begin_ = false;  // only "[" or "[^" so far: a "]" here is a member
};

}  // namespace

std::string to_pcre2_syntax(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace winnow
