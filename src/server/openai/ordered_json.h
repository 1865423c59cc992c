// JSON whose keys keep their order, which schemas and templates show.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace winnow::server {

/// `text` once more, of which `parsed` was made. To find a key takes as long as an object has keys,
/// so ApiError, about the field `param`, where objects have more than a request can need.
nlohmann::ordered_json in_order(std::string_view text, const nlohmann::json& parsed,
                                const std::string& param);

/// ApiError (400): `field`, a path such as tools[0].name, is not `expected`.
[[noreturn]] void reject(const std::string& field, std::string_view expected);

/// The string at `key` of `object`, which stands at `path`; else reject().
std::string text_at(const nlohmann::ordered_json& object, const char* key, const std::string& path);

}  // namespace winnow::server
