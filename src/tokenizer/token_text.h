// The "decoder" of tokenizer.json: from a token's string to the bytes it stands for.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/normalizer.h"

namespace winnow {

/// A chain of decoders. Those known are ByteLevel, WordPiece, Metaspace, none (then there are
/// spaces between tokens), and SentencePiece's: Replace, Strip, ByteFallback, Fuse, Strip (the
/// first space).
class TokenText {
 public:
  /// Error when `field` is not a decoder, Unsupported when it is another one, or one in another
  /// place.
  explicit TokenText(const JsonField& field);

  /// `first`: the token begins the text.
  [[nodiscard]] std::string bytes_of(std::string_view token, bool first) const;
  [[nodiscard]] bool drops_first_space() const { return drop_first_space_; }
  [[nodiscard]] bool has_byte_fallback() const { return byte_fallback_; }

 private:
  /// What becomes of one token.
  using Step = std::function<std::string(std::string_view token, bool first)>;

  void add(const JsonField& field, int depth);
  void add_step(const JsonField& field);
  void add_strip(const JsonField& field);

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;  // while reading: the next step sees all tokens as one
  bool drop_first_space_ = false;
  std::vector<Step> steps_;  // before ByteFallback
  double growth_ = 1;
};

/// The byte that a token of the form "<0x0A>" stands for, -1 for any other token.
int byte_token(std::string_view token);

}  // namespace winnow
