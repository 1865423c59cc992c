// The Unigram model of tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/token_model.h"

namespace winnow {

/// Cuts a piece so that the scores of the tokens add up to the most (Viterbi's algorithm).
class Unigram : public TokenModel {
 public:
  explicit Unigram(const JsonField& field);

  /// O(n m) in the length of a piece and of the longest token. Throws Error for a character that is
  /// no token when the model has none for the unknown.
  void encode(const Pieces& pieces, std::vector<std::int32_t>& out) const override;
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  struct Node {
    double score = 0;  // of the best way here
    std::size_t begin = 0;
    std::int32_t id = -1;  // of the last token on it; -1: none has come yet
  };

  void insert(std::string_view token, std::int32_t id);
  [[nodiscard]] std::vector<Node> best_ways(std::string_view piece) const;
  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;
  bool append_bytes(std::string_view text, std::vector<std::int32_t>& out) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  std::optional<std::int32_t> unknown_;
  double unknown_score_ = 0;
  bool byte_fallback_;
  bool fuse_unknown_;
  std::string where_;
  std::unordered_map<std::uint64_t, std::int32_t> edges_;  // of a trie: node and byte -> node
  std::vector<std::int32_t> tokens_{-1};                   // by node
};

}  // namespace winnow
