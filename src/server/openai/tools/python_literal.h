// Values as Python writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/openai/tools/words.h"

namespace winnow::server {

/// Reads a literal of `text` from `at` on, and goes behind it: a number, string, list, tuple,
/// dictionary, True, False or None (or their names in JSON). Match::beginning: the text may go on
/// with it.
Match python_literal(std::string_view text, std::size_t& at, nlohmann::ordered_json& value);

}  // namespace winnow::server
