// SentencePiece models (tokenizer.model): https://github.com/google/sentencepiece
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace winnow {

/// Settings of tokenizer_config.json that the model file lacks.
struct SentencePieceOptions {
  bool add_bos = true;  // Llama's convention
  bool add_eos = false;
  // Every part of the text between special tokens is encoded like a separate text, with
  // SentencePiece's space before it; otherwise, only a part at the text's beginning is.
  bool legacy = true;
  std::vector<AddedToken> added{};
};

/// The tokenizer in a model's bytes; `name`: the file's name in messages. Its control pieces
/// ("<s>") and `options.added` are matched in texts; unlike in the library, decoding a
/// control piece between the bytes of a character does not break it. Throws Error for a corrupt
/// model.
std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name,
                                                     SentencePieceOptions options);

}  // namespace winnow
