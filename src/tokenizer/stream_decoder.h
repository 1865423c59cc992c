// Token ids to text as they come, never splitting a UTF-8 character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace winnow {

/// push() returns the text that became certain with this token; what push() and finish() return,
/// concatenated, equals decode() of all ids. All of it is valid UTF-8. The tokenizer must outlive
/// the decoder.
class StreamDecoder {
 public:
  /// `marks`: special tokens that keep their text all the same.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true,
                         std::vector<std::int32_t> marks = {})
      : tokenizer_(&tokenizer), skip_special_(skip_special), marks_(std::move(marks)) {}

  /// Throws Error, and changes nothing, when `id` is no token's.
  std::string push(std::int32_t id);
  /// push() for what a model has chosen: vocabularies are padded, and an id that is no token's has
  /// no text.
  std::string push_chosen(std::int32_t id) {
    return tokenizer_->has_token(id) ? push(id) : std::string();
  }
  /// What is left: an incomplete character becomes U+FFFD. The decoder is then as new.
  std::string finish();

 private:
  std::string append(std::int32_t id, std::string bytes);
  std::string end_byte_run();
  void drop_first_space(std::string& text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool begins_ = true;  // no token has come yet but skipped ones
  std::vector<std::int32_t> marks_;
  bool first_ = true;                     // no text has come yet
  std::optional<std::int32_t> previous_;  // where repeats are dropped: the token before
  struct Held {
    std::int32_t id;
    bool first;
    std::string bytes;
  };
  std::optional<Held> held_;  // where the last token differs: it may be this one
  std::int32_t id_ = 0;       // of the last token that had text
  std::string pending_;  // bytes of a character, or of a run of byte tokens, whose end is to come
};

}  // namespace winnow
