// The string formats of JSON Schema.
#pragma once

#include <optional>
#include <string_view>

namespace winnow::grammar {

/// A pattern for a whole string of this format; "" for a format without constraints (an
/// annotation); nullopt for an unknown format.
std::optional<std::string_view> format_pattern(std::string_view format);

}  // namespace winnow::grammar
