#include "server/openai/ordered_json.h"

#include <fmt/format.h>

#include "checkpoint/json_text.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

constexpr double kMostComparisons = 2e7;  // of keys, during parsing: some tens of milliseconds

}  // namespace

double key_comparisons(const nlohmann::json& parsed) {
  const auto size = static_cast<double>(parsed.size());
  double comparisons = parsed.is_object() ? size * size / 2 : 0.0;
  if (parsed.is_structured()) {
    for (const nlohmann::json& inner : parsed) {
      comparisons += key_comparisons(inner);
    }
  }
  return comparisons;
}

nlohmann::ordered_json in_order(std::string_view text, double comparisons,
                                const std::string& param) {
  if (comparisons > kMostComparisons) {
    throw ApiError(400, "an object has more keys than a request can need", param, "invalid_value");
  }
  auto ordered = json_or_discarded<nlohmann::ordered_json>(text);
  if (ordered.is_discarded()) {  // bodies may have Python's NaN and Infinity, but not here
    throw ApiError(400, "NaN and Infinity are not JSON", param, "invalid_value");
  }
  return ordered;
}

void reject(const std::string& field, std::string_view expected) {
  throw ApiError(400, fmt::format("{}: expected {}", field, expected), field, "invalid_value");
}

std::string text_at(const nlohmann::ordered_json& object, const char* key,
                    const std::string& path) {
  if (!object.contains(key) || !object[key].is_string()) {
    reject(fmt::format("{}.{}", path, key), "a string");
  }
  return object[key].get<std::string>();
}

}  // namespace winnow::server
