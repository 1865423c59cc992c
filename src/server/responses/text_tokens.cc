#include "server/responses/text_tokens.h"

#include <algorithm>
#include <utility>

namespace winnow::server {

void TextTokens::push(const Json& tokens) {
  for (const Json& token : tokens) {
    std::string bytes;
    for (const Json& byte : token.at("bytes")) {
      bytes += static_cast<char>(byte.get<int>());
    }
    tokens_.push_back({token, std::move(bytes)});
  }
}

// The last position, because marks and calls precede the text; a position where a token begins is
// preferred to one within a mark.
std::optional<std::size_t> TextTokens::find(std::string_view text) const {
  std::string all;
  std::vector<std::size_t> begins;
  for (const Token& token : tokens_) {
    begins.push_back(all.size());
    all += token.bytes;
  }
  const std::size_t last = all.rfind(text);
  for (std::size_t at = last; at != std::string::npos;
       at = at == 0 ? std::string::npos : all.rfind(text, at - 1)) {
    if (std::ranges::binary_search(begins, at)) {
      return at;
    }
  }
  return last == std::string::npos ? std::nullopt : std::optional(last);
}

nlohmann::ordered_json TextTokens::take(std::string_view text) {
  const auto found = find(text);
  const std::size_t begin = found.value_or(0);
  const std::size_t end = found ? begin + text.size() : std::string::npos;
  Json taken = Json::array();
  std::vector<Token> rest;
  std::size_t at = 0;
  for (Token& token : tokens_) {
    const std::size_t next = at + token.bytes.size();
    if (at >= end) {
      rest.push_back(std::move(token));
    } else if (next > begin) {
      if (!token.score.is_null()) {
        taken.push_back(std::exchange(token.score, nullptr));
      }
      if (next > end) {
        rest.push_back({nullptr, token.bytes.substr(end - at)});
      }
    }
    at = next;
  }
  tokens_ = std::move(rest);
  return taken;
}

}  // namespace winnow::server
