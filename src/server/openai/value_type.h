// The types that JSON values may have: as much of JSON Schema as the fields of requests need.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace winnow::server {

/// What `type`, `minimum`, `maximum`, `items` and `properties` of a JSON Schema say.
struct ValueType {
  std::uint16_t kinds = 0;  // a bit for each type
  double lowest = 0.0;      // of numbers
  double highest = 0.0;
  std::shared_ptr<const ValueType> items;  // null: any
  std::vector<std::pair<std::string, std::shared_ptr<const ValueType>>> properties;
};

/// Reads a schema, which must know no other keywords but descriptions.
ValueType value_type(const nlohmann::ordered_json& schema);

/// Throws ApiError (400) if `value`, or something in it, is not of its type. `path` is what the
/// client calls the value.
void check_type(const nlohmann::json& value, const ValueType& type, const std::string& path);

}  // namespace winnow::server
