// Splits a piece at the matches of a pattern.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"
#include "tokenizer/regex.h"

namespace winnow {

/// How matches are treated. tokenizer.json's "behavior".
enum class SplitBehavior : std::uint8_t {
  removed,               // not part of any piece
  isolated,              // separate pieces
  merged_with_previous,  // joined to the text before the match
  merged_with_next,      // joined to the text after the match
  contiguous,            // adjacent matches form one piece
};

SplitBehavior parse_split_behavior(const JsonField& field);

/// Whether to split at a character.
using CharacterTest = bool (*)(char32_t code);

/// Splits pieces at the matches of a regular expression or a plain string, or at characters.
class Splitter {
 public:
  Splitter(Regex regex, SplitBehavior behavior, bool invert = false)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  /// `literal` must not be empty.
  Splitter(std::string literal, SplitBehavior behavior, bool invert = false)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}

  /// Every character that passes the test is a match.
  Splitter(CharacterTest test, SplitBehavior behavior) : test_(test), behavior_(behavior) {}

  /// Splits `piece` and appends the parts to `out`.
  void split(std::string_view piece, Pieces& out) const;

  /// Whether pieces are found from left to right, so that split_from() may be used.
  [[nodiscard]] bool goes_on() const {
    return regex_.has_value() && regex_->knows_open_texts() && behavior_ == SplitBehavior::isolated;
  }
  /// Appends the pieces of `text` from `from` on, which is 0 or the end of a piece. `open`: the
  /// text may continue; then only pieces that cannot change. Returns where they end.
  std::size_t split_from(std::string_view text, std::size_t from, bool open, Pieces& out) const;

 private:
  // A part of the piece, and whether it is a match (or, inverted, not a match).
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
