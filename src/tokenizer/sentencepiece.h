// SentencePiece models (tokenizer.model): https://github.com/google/sentencepiece
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace winnow {

/// What tokenizer_config.json says beyond the model.
struct SentencePieceOptions {
  bool add_bos = true;  // Llama's convention
  bool add_eos = false;
  // Every stretch of text between special tokens is encoded as if it were a text of its own, with
  // SentencePiece's space before it; otherwise only a stretch that begins the text is.
  bool legacy = true;
  std::vector<AddedToken> added{};
};

/// The tokenizer of a model's bytes; `name` stands for the file in messages. Its control pieces
/// ("<s>") and `options.added` are found in texts; decoding differs from the library's in that a
/// control piece between the bytes of a character does not break it. Throws Error for a damaged
/// model.
std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name,
                                                     SentencePieceOptions options);

}  // namespace winnow
