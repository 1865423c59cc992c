// Types of JSON values: the part of JSON Schema that request fields need.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace winnow::server {

/// A JSON Schema's `type`, `minimum`, `maximum`, `items` and `properties`.
struct ValueType {
  std::uint16_t kinds = 0;  // a bit for each type
  double lowest = 0.0;      // of numbers
  double highest = 0.0;
  std::shared_ptr<const ValueType> items;  // null: any
  std::vector<std::pair<std::string, std::shared_ptr<const ValueType>>> properties;
};

/// Parses a schema, which may have no other keywords except descriptions.
ValueType value_type(const nlohmann::ordered_json& schema);

/// Throws ApiError (400) if `value`, or a part of it, has the wrong type. `path` is the
/// client's name for the value.
void check_type(const nlohmann::json& value, const ValueType& type, const std::string& path);

}  // namespace winnow::server
