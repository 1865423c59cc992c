// Regular expressions of tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

/// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

namespace detail {
class RegexEngine;
}  // namespace detail

/// A compiled expression, usable from many threads at once.
///
/// tokenizer.json is written for Oniguruma. PCRE2 is several times as fast, and runs the
/// expressions that have the same meaning in it (regex_syntax.h), which is almost all in use;
/// Oniguruma runs the others.
class Regex {
 public:
  /// Throws Error that begins with `where`, the source of the expression.
  Regex(std::string_view pattern, std::string_view where);

  /// All matches in `text` (valid UTF-8), left to right, without overlap; an empty one directly
  /// after another match is skipped. Throws Error when the matcher exceeds its (large) limit
  /// of steps or memory.
  [[nodiscard]] std::vector<TextRange> find_all(std::string_view text) const {
    return find_from(text, 0, /*open=*/false);
  }
  /// Whether find_from() supports open texts.
  [[nodiscard]] bool knows_open_texts() const;
  /// The matches of find_all() from `from` on, which is 0 or the end of one of them. `open`: the
  /// text may continue; then it leaves out the first match that this could change, and all after
  /// it. An open text must not end with white space: PCRE2 does not report that it looked past
  /// a line's end (^, and without machine code \R+).
  [[nodiscard]] std::vector<TextRange> find_from(std::string_view text, std::size_t from,
                                                 bool open) const;

 private:
  std::shared_ptr<const detail::RegexEngine> engine_;
};

}  // namespace winnow
