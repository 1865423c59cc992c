// A vocabulary's tokens by their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "grammar/twins.h"

namespace winnow::grammar {

/// Tokens as a tree of prefixes: nodes lie in depth-first order, children by their bytes.
/// Immutable.
class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte = 0;         // that leads here
    std::uint16_t depth = 0;       // bytes from the root
    std::int32_t end = 0;          // behind all nodes below this one
    std::int32_t first_token = 0;  // tokens that end here are [first_token, the next node's)
  };

  /// Of tokens of `least` to `most` bytes.
  TokenTrie(const std::vector<std::string>& tokens, std::size_t least, std::size_t most);

  /// The first is the root.
  [[nodiscard]] std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  [[nodiscard]] std::span<const std::int32_t> tokens_at(std::size_t node) const {
    return std::span(tokens_).subspan(
        static_cast<std::size_t>(nodes_[node].first_token),
        static_cast<std::size_t>(nodes_[node + 1].first_token - nodes_[node].first_token));
  }
  /// Of the longest token.
  [[nodiscard]] std::size_t most_bytes() const { return most_bytes_; }
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

 private:
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<std::int32_t> tokens_;
  std::size_t most_bytes_ = 0;
};

/// All tokens that have bytes, in layers from short ones to long ones. Immutable, for all grammars
/// of a tokenizer.
class Vocabulary {
 public:
  /// `tokens[id]`: bytes; empty ones stand in no text.
  explicit Vocabulary(std::vector<std::string> tokens);

  /// One for each of kDepths, of tokens up to so long; the last holds those that are longer still.
  [[nodiscard]] std::span<const TokenTrie> layers() const { return layers_; }
  /// Ids, padding among them.
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] const std::string& bytes(std::int32_t token) const {
    return bytes_[static_cast<std::size_t>(token)];
  }

 private:
  std::vector<std::string> bytes_;
  std::vector<TokenTrie> layers_;
};

}  // namespace winnow::grammar
