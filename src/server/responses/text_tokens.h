// Finds the tokens of an answer that make up one of its texts.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::server {

/// An answer's tokens arrive in order, and so do its texts: thoughts and content. Between them
/// are marks and calls, which are reported in another form.
class TextTokens {
 public:
  using Json = nlohmann::ordered_json;

  /// Appends tokens, in the format of a chat's logprobs.
  void push(const Json& tokens);
  /// The tokens of `text`, the latest final text; drops those before it. Takes
  /// all if their bytes do not spell it: in a text, invalid bytes are replaced.
  Json take(std::string_view text);

 private:
  struct Token {
    Json score;  // null: taken, but its bytes extend into the next text
    std::string bytes;
  };
  /// The position of `text` in the tokens' bytes.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view text) const;

  std::vector<Token> tokens_;
};

}  // namespace winnow::server
