// Byte-pair encoding: the BPE model of tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/pieces.h"
#include "tokenizer/token_model.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_memo.h"

namespace winnow {

/// Splits a piece into characters and merges neighbours, lowest rank first (the leftmost among
/// equal ranks), until no merge applies.
class Bpe : public TokenModel {
 public:
  /// Error when `field` contradicts itself; Unsupported for dropout.
  explicit Bpe(const JsonField& field);

  /// Appends the ids of all pieces (valid UTF-8). O(n log n) in the length of a piece.
  void encode(const Pieces& pieces, std::vector<std::int32_t>& out) const override;

  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  class Word;

  void read_merges(const JsonField& field);
  void read_bytes();
  void find_whole();
  void encode(std::string_view piece, Word& word, std::vector<std::int32_t>& out) const;
  void merge(std::string_view piece, bool lenient, Word& word) const;
  // With `lenient`, skips unknown characters instead of throwing an Error.
  void append_characters(std::string_view piece, bool lenient, Word& word) const;
  bool append_bytes(std::string_view character, Word& word) const;
  // The character with the prefix or suffix of tokens at this position of a piece.
  [[nodiscard]] std::string marked(std::string_view character, bool first, bool last) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  bool ignore_merges_;       // a piece that is a token is not split, however it would merge
  bool byte_fallback_;       // a character without a token becomes byte tokens, "<0xE2>" ...
  bool fuse_unknown_;        // adjacent unknown characters become one unknown token
  std::vector<bool> whole_;  // by id: a piece with this token's text becomes the token,
                             // without computing merges
  std::string prefix_;       // of all characters of a piece except the first
  std::string suffix_;       // of a piece's last character
  std::optional<std::int32_t> unknown_;
  std::string missing_unknown_;  // the name of the unk_token, if it is not in the vocabulary
  std::vector<std::optional<std::int32_t>> bytes_;       // tokens of byte_fallback
  std::vector<std::optional<std::int32_t>> characters_;  // tokens of the lowest code points
  mutable WordMemos memos_;                              // used by encode()
};

}  // namespace winnow
