// The engine of a regular expression; internal to Regex.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/utf8.h"

namespace winnow::detail {

class RegexEngine {
 public:
  RegexEngine() = default;
  RegexEngine(const RegexEngine&) = delete;
  RegexEngine& operator=(const RegexEngine&) = delete;
  virtual ~RegexEngine() = default;

  [[nodiscard]] virtual std::vector<TextRange> find_from(std::string_view text, std::size_t from,
                                                         bool open) const = 0;
  /// Whether find_from() supports open texts.
  [[nodiscard]] virtual bool knows_open_texts() const = 0;
};

/// nullptr if PCRE2 does not accept `pattern`, which is written in its own syntax.
std::unique_ptr<const RegexEngine> make_pcre2_engine(const std::string& pattern,
                                                     const std::string& where);
/// Throws Error that begins with `where` when `pattern` is not a valid expression.
std::unique_ptr<const RegexEngine> make_oniguruma_engine(const std::string& pattern,
                                                         const std::string& where);

/// All matches of `next`, which returns the first match at or after a position. An empty one
/// directly after another match is skipped.
template <class Next>
std::vector<TextRange> all_matches(std::string_view text, std::size_t from, const Next& next) {
  std::vector<TextRange> matches;
  matches.reserve((text.size() - from) / 4);
  std::size_t last_end = from > 0 ? from : std::string_view::npos;  // of the previous match
  while (from <= text.size()) {
    const std::optional<TextRange> match = next(from);
    if (!match) {
      break;
    }
    if (match->begin == match->end && last_end == match->end) {
      // The search continues after the next character, as in the Rust bindings of Oniguruma.
      from = from == text.size() ? text.size() + 1 : from + utf8_length(text[from]);
      continue;
    }
    matches.push_back(*match);
    from = match->end;
    last_end = from;
  }
  return matches;
}

// Maximum number of steps of one search: a run of n spaces costs a few n. A pattern that needs more
// backtracks endlessly.
constexpr std::uint64_t allowed_steps(std::string_view text) {
  constexpr std::uint64_t kLeast = 100'000;
  constexpr std::uint64_t kPerByte = 64;
  const std::uint64_t steps = kPerByte * text.size();
  return steps < kLeast ? kLeast : steps;
}

}  // namespace winnow::detail
