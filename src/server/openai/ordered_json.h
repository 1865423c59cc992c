// JSON whose keys keep their order, for schemas and templates.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace winnow::server {

/// Comparisons of keys that reading `parsed` in order takes: finding a key takes time proportional
/// to the object's size.
double key_comparisons(const nlohmann::json& parsed);

/// Parses a text again, whose keys take so many comparisons. ApiError, about the field `param`, if
/// objects are larger than requests need.
nlohmann::ordered_json in_order(std::string_view text, double comparisons,
                                const std::string& param);

/// ApiError (400): `field`, a path such as tools[0].name, is not `expected`.
[[noreturn]] void reject(const std::string& field, std::string_view expected);

/// The string at `key` of `object`, whose path is `path`; else reject().
std::string text_at(const nlohmann::ordered_json& object, const char* key, const std::string& path);

}  // namespace winnow::server
