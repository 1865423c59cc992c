// Access control by API keys.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace winnow::server {

/// The keys in a file's text, one per line. Lines that are empty or begin with # are skipped.
std::vector<std::string> parse_keys(std::string_view text);

/// Whether two keys are equal, in a time that does not depend on where they differ.
bool is_same_key(std::string_view given, std::string_view key);

/// Whether the request has one of the keys.
bool has_key(const HttpRequest& head, std::span<const std::string> keys);

/// Whether a body follows the head, or may.
bool announces_body(const HttpRequest& head);

}  // namespace winnow::server
