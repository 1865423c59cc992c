// A prefix tree of a vocabulary's tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "grammar/twins.h"

namespace winnow::grammar {

/// A prefix tree of tokens: nodes in depth-first order, children sorted by their bytes.
/// Immutable.
class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte = 0;         // on the edge to this node
    std::uint16_t depth = 0;       // bytes from the root
    std::int32_t end = 0;          // index after the last node below this one
    std::int32_t first_token = 0;  // its tokens are [first_token, that of the next node)
  };

  /// The tree of all tokens of `least` to `most` bytes.
  TokenTrie(const std::vector<std::string>& tokens, std::size_t least, std::size_t most);

  /// All nodes; the first is the root.
  [[nodiscard]] std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  [[nodiscard]] std::span<const std::int32_t> tokens_at(std::size_t node) const {
    return std::span(tokens_).subspan(
        static_cast<std::size_t>(nodes_[node].first_token),
        static_cast<std::size_t>(nodes_[node + 1].first_token - nodes_[node].first_token));
  }
  /// The length of the longest token.
  [[nodiscard]] std::size_t most_bytes() const { return most_bytes_; }
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

 private:
  std::vector<Node> nodes_;  // with a sentinel after the last
  std::vector<std::int32_t> tokens_;
  std::size_t most_bytes_ = 0;
};

/// All tokens that have bytes, in layers from short to long ones. Immutable; shared by all grammars
/// of a tokenizer.
class Vocabulary {
 public:
  /// `tokens[id]`: the bytes of a token; empty: it never occurs in a text.
  explicit Vocabulary(std::vector<std::string> tokens);

  /// One layer for each of kDepths, with tokens up to that length; the last has all longer ones.
  [[nodiscard]] std::span<const TokenTrie> layers() const { return layers_; }
  /// The number of ids, including padding.
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] const std::string& bytes(std::int32_t token) const {
    return bytes_[static_cast<std::size_t>(token)];
  }

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenTrie> layers_;
};

}  // namespace winnow::grammar
