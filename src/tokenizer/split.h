// Cutting a piece at the matches of a pattern.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"
#include "tokenizer/regex.h"

namespace winnow {

/// What becomes of the matches. tokenizer.json's "behavior".
enum class SplitBehavior : std::uint8_t {
  removed,               // dropped
  isolated,              // pieces of their own
  merged_with_previous,  // each joined to the text before it
  merged_with_next,      // each joined to the text after it
  contiguous,            // neighbouring matches make one piece
};

SplitBehavior parse_split_behavior(const JsonField& field);

/// Whether a character is one to cut at.
using CharacterTest = bool (*)(char32_t code);

/// Cuts pieces at the matches of a regular expression or a plain string, or at characters.
class Splitter {
 public:
  Splitter(Regex regex, SplitBehavior behavior, bool invert = false)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  /// `literal` must not be empty.
  Splitter(std::string literal, SplitBehavior behavior, bool invert = false)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}

  /// Every character that is of the kind is a match.
  Splitter(CharacterTest test, SplitBehavior behavior) : test_(test), behavior_(behavior) {}

  /// Appends `piece`, cut, to `out`.
  void split(std::string_view piece, Pieces& out) const;

  /// Whether pieces follow each other as they are found, so that split_from() can be asked for.
  [[nodiscard]] bool goes_on() const {
    return regex_.has_value() && regex_->knows_open_texts() && behavior_ == SplitBehavior::isolated;
  }
  /// Appends the pieces of `text` from `from` on, which is 0 or the end of a piece. `open`: the
  /// text may go on; then only those that stay what they are. Returns where they end.
  std::size_t split_from(std::string_view text, std::size_t from, bool open, Pieces& out) const;

 private:
  // A stretch of the piece, and whether the pattern (or, inverted, its absence) made it.
  struct Part {
    TextRange range;
    bool match = false;
  };
  [[nodiscard]] std::vector<TextRange> find_all(std::string_view piece) const;
  [[nodiscard]] std::vector<Part> parts_of(std::string_view piece) const;
  [[nodiscard]] std::vector<Part> merge(std::vector<Part> parts) const;

  std::optional<Regex> regex_;
  std::string literal_;
  CharacterTest test_ = nullptr;
  SplitBehavior behavior_;
  bool invert_ = false;
};

}  // namespace winnow
