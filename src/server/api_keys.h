// Who may ask.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/http/http.h"

namespace winnow::server {

/// Whether two keys are equal, in a time that tells nothing of where they differ.
bool is_same_key(std::string_view given, std::string_view key);

/// Whether the request brings one of the keys.
bool has_key(const HttpRequest& head, std::span<const std::string> keys);

/// Whether a body follows the head, or may.
bool announces_body(const HttpRequest& head);

}  // namespace winnow::server
