#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/regex_syntax.h"
#include "tokenizer/unicode_tables.h"

namespace winnow {
namespace {

// Rewrites an expression so that an older Oniguruma matches what the newer one does.
class Modernizer {
 public:
  explicit Modernizer(std::string_view pattern) : rest_(pattern) {}

  std::string run() {
    while (!rest_.empty()) {
      const bool property = rest_.starts_with("\\p{") || rest_.starts_with("\\P{");
      const std::size_t end = property ? rest_.find('}') : std::string_view::npos;
      if (end != std::string_view::npos) {
        put_property(end);
      } else if (depth_ > 0 && (skip("[:punct:]") || skip("[:^punct:]"))) {
        // Already written by skip().
      } else {
        put(rest_.front() == '\\' ? 2 : 1);
      }
    }
    return std::move(out_);
  }

 private:
  // The newer one counts symbols as punctuation; the older one does not.
  bool skip(std::string_view bracket) {
    if (!rest_.starts_with(bracket)) {
      return false;
    }
    out_ += bracket[2] == '^' ? "[^\\p{P}\\p{S}]" : "\\p{P}\\p{S}";
    rest_.remove_prefix(bracket.size());
    return true;
  }

  void put(std::size_t length) {
    length = std::min(length, rest_.size());
    depth_ += rest_.front() == '[' ? 1 : rest_.front() == ']' && depth_ > 0 ? -1 : 0;
    out_ += rest_.substr(0, length);
    rest_.remove_prefix(length);
  }

  void put_property(std::size_t end) {
    const std::size_t begin = rest_[3] == '^' ? 4 : 3;
    const std::string_view name = rest_.substr(begin, end - begin);
    const bool negated = (rest_[1] == 'P') != (begin == 4);
    const std::string_view newer = newer_members(name);
    if (!newer.empty()) {
      out_ += fmt::format("[{}\\p{{{}}}{}]", negated ? "^" : "", name, newer);
    } else if (depth_ == 0 && name == "Word") {
      out_ += negated ? "\\W" : "\\w";
    } else {
      out_ += rest_.substr(0, end + 1);
    }
    rest_.remove_prefix(end + 1);
  }

  std::string_view rest_;
  std::string out_;
  int depth_ = 0;  // nesting of classes
};

}  // namespace

std::string to_unicode_16(std::string_view pattern) {
  return Modernizer(pattern).run();
}

}  // namespace winnow
