#include "hub/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>

#include "base/error.h"
#include "checkpoint/json.h"

namespace winnow::hub {
namespace {

namespace fs = std::filesystem;

/// The value of the first variable that is set and not empty.
std::string value_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') {
      return value;
    }
  }
  return "";
}

bool is_true(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

/// Expands a leading "~".
fs::path expand_home(const std::string& text) {
  const bool at_home = text == "~" || text.starts_with("~/");
  if (!at_home) {
    return text;
  }
  const std::string home = value_of({"HOME"});
  require(!home.empty(), "{}: HOME is not set", text);
  return home + text.substr(1);
}

fs::path read_hf_home() {
  if (const std::string home = value_of({"HF_HOME"}); !home.empty()) {
    return expand_home(home);
  }
  const std::string caches = value_of({"XDG_CACHE_HOME"});
  return (caches.empty() ? expand_home("~/.cache") : expand_home(caches)) / "huggingface";
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

void read_token(Environment& environment, const fs::path& home) {
  const std::string path = value_of({"HF_TOKEN_PATH"});
  const fs::path file = path.empty() ? home / "token" : expand_home(path);
  environment.token_source = "HF_TOKEN";
  environment.token = trimmed(value_of({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
  if (environment.token.empty()) {
    environment.token_source = file.string();
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) {
      environment.token = trimmed(read_text_file(file));
    }
  }
  // Other characters could end the header that carries the token, and begin another one.
  require(std::ranges::all_of(environment.token, [](char c) { return c > ' ' && c <= '~'; }),
          "{}: not a token: it has characters other than letters, digits and signs",
          environment.token_source);
}

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.endpoint = value_of({"HF_ENDPOINT"});
  if (environment.endpoint.empty()) {
    environment.endpoint = "https://huggingface.co";
  }
  require(
      environment.endpoint.starts_with("http://") || environment.endpoint.starts_with("https://"),
      "HF_ENDPOINT: expected a URL, got {}", in_quotes(environment.endpoint));
  while (environment.endpoint.ends_with('/')) {
    environment.endpoint.pop_back();
  }
  const fs::path home = read_hf_home();
  const std::string cache = value_of({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  environment.cache = cache.empty() ? home / "hub" : expand_home(cache);
  environment.offline = is_true(value_of({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  read_token(environment, home);
  environment.certificates = certificates_of_environment();
  return environment;
}

std::string certificates_of_environment() {
  return value_of({"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"});
}

}  // namespace winnow::hub
