// JSON values from text and as text, as nlohmann::json reads and writes them. Its parser and its
// writer are templates: a caller of json::parse or dump() makes the compiler build them again, in
// cold files without optimisation. Here they are compiled once, for speed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace winnow {

/// Json: nlohmann::json or ordered_json. Throws its exceptions.
template <class Json>
Json json_from(std::string_view text);

/// The same, but is_discarded() if `text` is not JSON.
template <class Json>
Json json_or_discarded(std::string_view text);

/// `value` as text, in one line, or with `indent` spaces a level. Throws the library's exception if
/// a string is not UTF-8.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// The same with U+FFFD in place of what is not UTF-8.
std::string json_text_replacing(const nlohmann::json& value, int indent = -1);
std::string json_text_replacing(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace winnow
