#include "server/openai/tools/words.h"

#include <algorithm>
#include <cctype>

namespace winnow::server {

void skip_blanks(std::string_view text, std::size_t& at) {
  at = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

Match match(std::string_view text, std::size_t& at, std::string_view word) {
  skip_blanks(text, at);
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(word)) {
    at += word.size();
    return Match::whole;
  }
  return word.starts_with(rest) ? Match::beginning : Match::other;
}

bool take_word(std::string& text, std::string_view word) {
  std::size_t at = 0;
  const Match found = match(text, at, word);
  if (found == Match::whole) {
    text.erase(0, at);
  }
  return found != Match::beginning;
}

bool is_function_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace winnow::server
