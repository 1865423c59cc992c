// A vocabulary's tokens by their bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace winnow::grammar {

/// All tokens that have bytes, as a tree of prefixes: nodes lie in depth-first order, children by
/// their bytes. Immutable, for all grammars of a vocabulary.
class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte = 0;         // that leads here
    std::uint16_t depth = 0;       // bytes from the root
    std::int32_t end = 0;          // behind all nodes below this one
    std::int32_t first_token = 0;  // tokens that end here are [first_token, the next node's)
  };

  /// `tokens[id]`: bytes; empty ones stand in no text.
  explicit TokenTrie(const std::vector<std::string>& tokens);

  /// The first is the root.
  [[nodiscard]] std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  [[nodiscard]] std::span<const std::int32_t> tokens_at(std::size_t node) const {
    return std::span(tokens_).subspan(
        static_cast<std::size_t>(nodes_[node].first_token),
        static_cast<std::size_t>(nodes_[node + 1].first_token - nodes_[node].first_token));
  }
  /// Ids of the vocabulary, padding among them.
  [[nodiscard]] std::size_t vocabulary() const { return bytes_.size(); }
  [[nodiscard]] const std::string& bytes(std::int32_t token) const {
    return bytes_[static_cast<std::size_t>(token)];
  }
  /// Of the longest token.
  [[nodiscard]] std::size_t most_bytes() const { return most_bytes_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<std::int32_t> tokens_;
  std::size_t most_bytes_ = 0;
};

}  // namespace winnow::grammar
