// The formats that JSON Schema names.
#pragma once

#include <optional>
#include <string_view>

namespace winnow::grammar {

/// A pattern that the whole of a string of this format matches; "" for one that asks for nothing
/// (a hint for people); nullopt for one that nobody knows.
std::optional<std::string_view> format_pattern(std::string_view format);

}  // namespace winnow::grammar
