#include "checkpoint/json_text.h"

#include <nlohmann/json.hpp>

namespace winnow {

using nlohmann::ordered_json;

template <class Json>
Json json_from(std::string_view text) {
  return Json::parse(text);
}

template <class Json>
Json json_or_discarded(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

template nlohmann::json json_from(std::string_view text);
template ordered_json json_from(std::string_view text);
template nlohmann::json json_or_discarded(std::string_view text);
template ordered_json json_or_discarded(std::string_view text);

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent);
}

std::string json_text(const ordered_json& value, int indent) {
  return value.dump(indent);
}

std::string json_text_replacing(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text_replacing(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace winnow
