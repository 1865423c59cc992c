// Converts token ids to text as they arrive, without splitting a UTF-8 character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace winnow {

/// push() returns the text that became final with this token. The results of push() and finish(),
/// concatenated, equal decode() of all ids. All of it is valid UTF-8. The tokenizer must outlive
/// the decoder.
class StreamDecoder {
 public:
  /// `marks`: special tokens that keep their text even so.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true,
                         std::vector<std::int32_t> marks = {})
      : tokenizer_(&tokenizer), skip_special_(skip_special), marks_(std::move(marks)) {}

  /// Throws Error, without a change, when no token has this `id`.
  std::string push(std::int32_t id);
  /// push() for a token that a model has chosen: vocabularies are padded, and an id without a token
  /// has no text.
  std::string push_chosen(std::int32_t id) {
    return tokenizer_->has_token(id) ? push(id) : std::string();
  }
  /// Returns the rest: an incomplete character becomes U+FFFD. Then resets the decoder.
  std::string finish();

 private:
  std::string append(std::int32_t id, std::string bytes);
  std::string end_byte_run();
  void drop_first_space(std::string& text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool begins_ = true;  // no token so far, except skipped ones
  std::vector<std::int32_t> marks_;
  bool first_ = true;                     // no text so far
  std::optional<std::int32_t> previous_;  // the previous token, if repeats are dropped
  struct Held {
    std::int32_t id;
    bool first;
    std::string bytes;
  };
  std::optional<Held> held_;  // used if the last token's text differs: this may be the last
  std::int32_t id_ = 0;       // of the last token that had text
  std::string pending_;       // of an incomplete character or run of byte tokens
};

}  // namespace winnow
