#include "server/openai/ordered_json.h"

#include "server/http/api_error.h"

namespace winnow::server {
namespace {

constexpr double kMostComparisons = 2e7;  // of keys, while they are read: some tens of milliseconds

double key_comparisons(const nlohmann::json& value) {
  const auto size = static_cast<double>(value.size());
  double comparisons = value.is_object() ? size * size / 2 : 0.0;
  if (value.is_structured()) {
    for (const nlohmann::json& inner : value) {
      comparisons += key_comparisons(inner);
    }
  }
  return comparisons;
}

}  // namespace

nlohmann::ordered_json in_order(std::string_view text, const nlohmann::json& parsed,
                                const std::string& param) {
  if (key_comparisons(parsed) > kMostComparisons) {
    throw ApiError(400, "an object has more keys than a request can need", param, "invalid_value");
  }
  return nlohmann::ordered_json::parse(text);
}

}  // namespace winnow::server
