#include "server/openai/json_fields.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/json.h"
#include "server/http/api_error.h"

namespace winnow::server {

using nlohmann::json;

json parse_body(std::string_view body) {
  json value;
  try {
    value = parse_json(body, "the body");
  } catch (const Error& error) {
    throw ApiError(400, error.what(), {}, "invalid_json");
  }
  if (!value.is_object()) {
    throw ApiError(400, "the body is not a JSON object but " + described(value), {},
                   "invalid_type");
  }
  return value;
}

const json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::reject(const std::string& name, std::string_view expected) const {
  const auto found = object_.find(name);
  std::string is = found == object_.end() ? "absent" : described(*found);
  if (found != object_.end() && found->is_array()) {
    is += fmt::format(" of {}", found->size());
  }
  throw ApiError(400, fmt::format("{} is {}; expected {}", name_of(name), is, expected),
                 name_of(name), "invalid_value");
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t lowest,
                                            std::int64_t highest) const {
  const json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  const auto expected = [&] { return fmt::format("an integer from {} to {}", lowest, highest); };
  // Read as double first: a number beyond 64 bits is out of range, and does not wrap around.
  if (!value->is_number() || std::trunc(value->get<double>()) != value->get<double>() ||
      value->get<double>() < static_cast<double>(lowest) ||
      value->get<double>() > static_cast<double>(highest) || value->get<double>() >= 0x1p63) {
    reject(name, expected());
  }
  if (value->is_number_unsigned() &&
      value->get<std::uint64_t>() > static_cast<std::uint64_t>(highest)) {
    reject(name, expected());
  }
  return value->is_number_float() ? static_cast<std::int64_t>(value->get<double>())
                                  : value->get<std::int64_t>();
}

std::optional<std::uint64_t> Fields::bits(const char* name) const {
  const json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->is_number_integer()) {
    return value->is_number_unsigned() ? value->get<std::uint64_t>()
                                       : static_cast<std::uint64_t>(value->get<std::int64_t>());
  }
  const double number = value->is_number() ? value->get<double>() : 0.5;
  if (std::trunc(number) != number || std::abs(number) >= 0x1p63) {
    reject(name, fmt::format("an integer from {} to {}", std::numeric_limits<std::int64_t>::min(),
                             std::numeric_limits<std::uint64_t>::max()));
  }
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(number));
}

std::optional<double> Fields::number(const char* name, double lowest, double highest) const {
  const json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number() || !(value->get<double>() >= lowest) ||
      !(value->get<double>() <= highest)) {
    reject(name, fmt::format("a number from {} to {}", lowest, highest));
  }
  return value->get<double>();
}

std::optional<bool> Fields::boolean(const char* name) const {
  const json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_boolean()) {
    reject(name, "true or false");
  }
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const char* name) const {
  const json* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_string()) {
    reject(name, "a string");
  }
  return value->get<std::string>();
}

const json* Fields::object(const char* name) const {
  const json* value = find(name);
  if (value != nullptr && !value->is_object()) {
    reject(name, "an object");
  }
  return value;
}

int Fields::integer_or(const char* name, int otherwise) const {
  using Limits = std::numeric_limits<int>;
  return static_cast<int>(integer(name, Limits::min(), Limits::max()).value_or(otherwise));
}

double Fields::number_or(const char* name, double otherwise) const {
  using Limits = std::numeric_limits<double>;
  return number(name, Limits::lowest(), Limits::max()).value_or(otherwise);
}

std::vector<std::string> Fields::texts(const char* name, std::size_t most) const {
  const json* value = find(name);
  if (value == nullptr) {
    return {};
  }
  if (!value->is_array() || value->size() > most) {
    reject(name, fmt::format("an array of at most {} strings", most));
  }
  std::vector<std::string> texts;
  for (const json& text : *value) {
    if (!text.is_string()) {
      reject(name, "an array of strings alone");
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::vector<std::int32_t> Fields::tokens(const char* name) const {
  const json* value = find(name);
  return value == nullptr ? std::vector<std::int32_t>() : token_ids(*value, name_of(name));
}

std::string Fields::name_of(const std::string& name) const {
  if (spelled_ != nullptr) {
    if (const auto found = spelled_->find(name); found != spelled_->end()) {
      return path_ + found->second;
    }
  }
  return path_ + name;
}

std::vector<std::int32_t> token_ids(const json& value, const std::string& param) {
  const auto refuse = [&](const json& found) {
    throw ApiError(400, fmt::format("{} holds {}; expected token ids", param, described(found)),
                   param, "invalid_value");
  };
  if (!value.is_array()) {
    refuse(value);
  }
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const json& id : value) {
    if (!id.is_number_integer() || id.get<double>() < 0.0 ||
        id.get<double>() > static_cast<double>(std::numeric_limits<std::int32_t>::max())) {
      refuse(id);
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

}  // namespace winnow::server
