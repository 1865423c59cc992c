// The Unigram model of tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/token_model.h"

namespace winnow {

/// Splits a piece so that the sum of the tokens' scores is highest (Viterbi's algorithm).
class Unigram : public TokenModel {
 public:
  explicit Unigram(const JsonField& field);

  /// O(n m) for a piece of length n and a longest token of length m. Throws Error for an unknown
  /// character if the model has no unknown token.
  void encode(const Pieces& pieces, std::vector<std::int32_t>& out) const override;
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  struct Node {
    double score = 0;  // of the best path to this position
    std::size_t begin = 0;
    std::int32_t id = -1;  // of the path's last token; -1: none so far
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
