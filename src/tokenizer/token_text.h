// The "decoder" of tokenizer.json: from a token's string to the bytes it stands for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/normalizer.h"

namespace winnow {

/// ByteLevel, or SentencePiece's chain: Replace, ByteFallback, Fuse, Strip (the first space).
class TokenText {
 public:
  /// Error when `field` is not a decoder, Unsupported when it is another one.
  explicit TokenText(const JsonField& field);

  [[nodiscard]] std::string bytes_of(std::string_view token) const;
  [[nodiscard]] bool drops_first_space() const { return drop_first_space_; }
  [[nodiscard]] bool has_byte_fallback() const { return byte_fallback_; }

 private:
  void add(const JsonField& field, int depth);
  void add_strip(const JsonField& field);

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;  // while reading: the next step sees all tokens as one
  bool drop_first_space_ = false;
  std::vector<Replacement> replacements_;
  double growth_ = 1;
};

/// The byte that a token of the form "<0x0A>" stands for, -1 for any other token.
int byte_token(std::string_view token);

}  // namespace winnow
