// Parses Python literals.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/openai/tools/words.h"

namespace winnow::server {

/// Parses a literal of `text` at `at`, and moves `at` past it: a number, string, list, tuple,
/// dictionary, True, False or None (or their JSON names). Match::beginning: the text may be a
/// prefix of one.
Match python_literal(std::string_view text, std::size_t& at, nlohmann::ordered_json& value);

}  // namespace winnow::server
