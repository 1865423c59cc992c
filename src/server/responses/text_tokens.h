// Which of an answer's tokens make up a text of it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::server {

/// Tokens of an answer come in order, and so do its texts: thoughts and what is said. Between them
/// are marks and calls, which are told in other words.
class TextTokens {
 public:
  using Json = nlohmann::ordered_json;

  /// More tokens, as the logprobs of a chat have them.
  void push(const Json& tokens);
  /// Those of `text`, which is the latest that is certain; drops those before it. Takes
  /// all where their bytes do not spell it: a text has replaced bytes that are no characters.
  Json take(std::string_view text);

 private:
  struct Token {
    Json score;  // null: taken, but its bytes reach into the next text
    std::string bytes;
  };
  /// Where `text` begins in the tokens' bytes.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view text) const;

  std::vector<Token> tokens_;
};

}  // namespace winnow::server
