// The "decoder" of tokenizer.json: converts a token's string to the bytes that it encodes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/normalizer.h"

namespace winnow {

/// A chain of decoders. Supported are ByteLevel, WordPiece, BPEDecoder, CTC, Metaspace, none
/// (then there are spaces between tokens), and SentencePiece's: Replace, Strip, ByteFallback, Fuse,
/// Strip (the first space).
class TokenText {
 public:
  /// Error when `field` is not a decoder, Unsupported when its type, or its position, is not
  /// supported.
  explicit TokenText(const JsonField& field);

  /// `first`: the token begins the text; `last`: it ends it, which matters if marks_last().
  [[nodiscard]] std::string bytes_of(std::string_view token, bool first, bool last = false) const;
  [[nodiscard]] bool marks_last() const { return marks_last_; }
  /// Whether a repeated token has no text (CTC).
  [[nodiscard]] bool drops_repeats() const { return drops_repeats_; }
  [[nodiscard]] bool drops_first_space() const { return drop_first_space_; }
  [[nodiscard]] bool has_byte_fallback() const { return byte_fallback_; }

 private:
  /// The position of a token in the text.
  struct Place {
    bool first = false;
    bool last = false;
  };
  /// Converts one token.
  using Step = std::function<std::string(std::string_view token, Place place)>;

  void add(const JsonField& field, int depth);
  void add_step(const JsonField& field);
  void add_strip(const JsonField& field);
  void add_bpe(const JsonField& field);
  void add_ctc(const JsonField& field);

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;  // while reading: the next step sees all tokens as one
  bool drop_first_space_ = false;
  bool marks_last_ = false;
  bool drops_repeats_ = false;
  std::vector<Step> steps_;  // before ByteFallback
  double growth_ = 1;
};

/// The byte of a token of the form "<0x0A>", -1 for any other token.
int byte_token(std::string_view token);

}  // namespace winnow
