#include "grammar/token_trie.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace winnow::grammar {
namespace {

constexpr std::size_t kMostTokenBytes = 65535;  // of a token

}  // namespace

TokenTrie::TokenTrie(const std::vector<std::string>& tokens, std::size_t least, std::size_t most) {
  const auto bytes = [&tokens](std::int32_t token) -> const std::string& {
    return tokens[static_cast<std::size_t>(token)];
  };
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].size() >= least && tokens[id].size() <= most) {
      tokens_.push_back(static_cast<std::int32_t>(id));
      most_bytes_ = std::max(most_bytes_, tokens[id].size());
    }
  }
  std::ranges::stable_sort(tokens_, {}, bytes);
  nodes_.push_back({});
  std::vector<std::size_t> path{0};  // from the root to the last token's node
  std::string last;
  const auto leave = [&](std::size_t depth) {
    while (path.size() > depth + 1) {
      nodes_[path.back()].end = static_cast<std::int32_t>(nodes_.size());
      path.pop_back();
    }
  };
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = bytes(tokens_[i]);
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(last, token).in1 - last.begin());
    leave(common);
    for (std::size_t depth = common; depth < token.size(); ++depth) {
      path.push_back(nodes_.size());
      nodes_.push_back({.byte = static_cast<std::uint8_t>(token[depth]),
                        .depth = static_cast<std::uint16_t>(depth + 1),
                        .first_token = static_cast<std::int32_t>(i)});
    }
    last = token;
  }
  leave(0);
  nodes_[0].end = static_cast<std::int32_t>(nodes_.size());
  nodes_.push_back({.first_token = static_cast<std::int32_t>(tokens_.size())});
}

Vocabulary::Vocabulary(std::vector<std::string> tokens) : bytes_(std::move(tokens)) {
  for (const std::string& token : bytes_) {
    require(token.size() <= kMostTokenBytes, "a token of {} bytes", token.size());
  }
  std::size_t least = 1;
  for (const std::size_t most : kDepths) {
    layers_.emplace_back(bytes_, least, most);
    least = most + 1;
  }
  layers_.emplace_back(bytes_, least, kMostTokenBytes);
}

}  // namespace winnow::grammar
