#include "server/api_keys.h"

#include <algorithm>
#include <cctype>

namespace winnow::server {

std::vector<std::string> parse_keys(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string> keys;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    line = line.substr(0, line.find_last_not_of(kBlank) + 1);
    if (!line.empty() && line.front() != '#') {
      keys.emplace_back(line);
    }
  }
  return keys;
}

bool is_same_key(std::string_view given, std::string_view key) {
  if (key.empty()) {
    return false;
  }
  std::size_t difference = given.size() ^ key.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ key[i % key.size()]);
  }
  return difference == 0;
}

bool has_key(const HttpRequest& head, std::span<const std::string> keys) {
  constexpr std::string_view kBearer = "bearer ";
  std::string_view given = head.header("authorization");
  // The scheme's name may be in any case, and several spaces may follow (RFC 9110, section 11).
  const bool bears =
      std::ranges::equal(given.substr(0, kBearer.size()), kBearer,
                         [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
  given.remove_prefix(bears ? kBearer.size() : given.size());
  given.remove_prefix(std::min(given.find_first_not_of(' '), given.size()));
  if (given.empty()) {  // the header that Anthropic's clients send
    given = head.header("x-api-key");
  }
  bool known = false;
  for (const std::string& key : keys) {
    known |= is_same_key(given, key);
  }
  return known;
}

bool announces_body(const HttpRequest& head) {
  const std::string_view length = head.header("content-length");
  return !head.header("transfer-encoding").empty() || (!length.empty() && length != "0");
}

}  // namespace winnow::server
