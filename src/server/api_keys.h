// Who may ask.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace winnow::server {

/// The keys in a file's text, one per line. Lines that are empty or begin with # hold none.
std::vector<std::string> parse_keys(std::string_view text);

/// Whether two keys are equal, in a time that tells nothing of where they differ.
bool is_same_key(std::string_view given, std::string_view key);

/// Whether the request brings one of the keys.
bool has_key(const HttpRequest& head, std::span<const std::string> keys);

/// Whether a body follows the head, or may.
bool announces_body(const HttpRequest& head);

}  // namespace winnow::server
