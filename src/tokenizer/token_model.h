// The "model" of tokenizer.json: converts pieces of text to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"
#include "tokenizer/vocabulary.h"

namespace winnow {

class TokenModel {
 public:
  TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;
  virtual ~TokenModel() = default;

  /// Appends the ids of all pieces (valid UTF-8).
  virtual void encode(const Pieces& pieces, std::vector<std::int32_t>& out) const = 0;
  [[nodiscard]] virtual const Vocabulary& vocabulary() const = 0;
};

/// BPE (bpe.h), Unigram (unigram.h), WordPiece or WordLevel (each whole piece is a token). Error
/// when `field` is not a model or contradicts itself, Unsupported for another type.
std::unique_ptr<const TokenModel> read_model(const JsonField& field);

}  // namespace winnow
