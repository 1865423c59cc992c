// Writes SentencePiece's model file, for vocabularies from other formats.
// https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include <string>
#include <vector>

namespace winnow {

/// A BPE with byte fallback and no normalization.
struct PieceVocabulary {
  struct Piece {
    std::string text;
    float score = 0.0F;
    int type = 1;  // SentencePiece's: 1 normal, 2 unknown, 3 control, 4 user defined, 6 a byte
  };
  std::vector<Piece> pieces;
  bool space_before = true;  // before every text
  int unknown = 0;
  int begin = -1;
  int end = -1;
};

/// The bytes of a tokenizer.model.
std::string write_sentencepiece(const PieceVocabulary& model);

}  // namespace winnow
