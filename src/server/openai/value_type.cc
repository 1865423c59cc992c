#include "server/openai/value_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "checkpoint/json.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct KindName {
  std::string_view name;
  std::string_view words;  // for error messages
};

// By bit.
constexpr std::array kKinds{KindName{"null", "null"},       KindName{"boolean", "true or false"},
                            KindName{"string", "a string"}, KindName{"integer", "an integer"},
                            KindName{"number", "a number"}, KindName{"array", "an array"},
                            KindName{"object", "an object"}};
constexpr std::uint16_t kAnyKind = (1U << kKinds.size()) - 1;

constexpr std::uint16_t bit_of(std::string_view name) {
  const auto* const found = std::ranges::find(kKinds, name, &KindName::name);
  return static_cast<std::uint16_t>(1U << static_cast<unsigned>(found - kKinds.begin()));
}

constexpr std::uint16_t kNull = bit_of("null");
constexpr std::uint16_t kNumbers = bit_of("integer") | bit_of("number");

// A whole number is an integer even if written with a fraction or exponent.
std::uint16_t kinds_of(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return kNull;
    case json::value_t::boolean:
      return bit_of("boolean");
    case json::value_t::string:
      return bit_of("string");
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
      return kNumbers;
    case json::value_t::number_float: {
      const auto number = value.get<double>();
      return std::trunc(number) == number ? kNumbers : bit_of("number");
    }
    case json::value_t::array:
      return bit_of("array");
    case json::value_t::object:
      return bit_of("object");
    default:
      return 0;
  }
}

bool is_of_kind(const json& value, const ValueType& type) {
  if ((kinds_of(value) & type.kinds) == 0) {
    return false;
  }
  return !value.is_number() ||
         (value.get<double>() >= type.lowest && value.get<double>() <= type.highest);
}

bool fits(const json& value, const ValueType& type) {
  if (!is_of_kind(value, type)) {
    return false;
  }
  if (value.is_array() && type.items != nullptr) {
    return std::ranges::all_of(value, [&](const json& item) { return fits(item, *type.items); });
  }
  if (value.is_object()) {
    for (const auto& [name, type_of] : type.properties) {
      if (const auto found = value.find(name); found != value.end() && !fits(*found, *type_of)) {
        return false;
      }
    }
  }
  return true;
}

std::string range_words(const ValueType& type) {
  if (type.highest < kInfinity) {
    return fmt::format(" from {} to {}", type.lowest, type.highest);
  }
  return type.lowest > -kInfinity ? fmt::format(" from {} up", type.lowest) : "";
}

// Null means absent, and is not mentioned if there are other types.
std::string expected_words(const ValueType& type) {
  std::string words;
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    const auto bit = static_cast<std::uint16_t>(1U << i);
    if ((type.kinds & bit) != 0 && (bit != kNull || type.kinds == kNull)) {
      words += fmt::format("{}{}{}", words.empty() ? "" : " or ", kKinds[i].words,
                           (bit & kNumbers) != 0 ? range_words(type) : "");
    }
  }
  return words;
}

// Descends to the wrong part of a value that does not fit. `param`: the field of the value,
// since items have no names.
[[noreturn]] void reject_within(const json& value, const ValueType& type, const std::string& path,
                                const std::string& param) {
  if (is_of_kind(value, type)) {
    for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
      if (!fits(value[i], *type.items)) {
        reject_within(value[i], *type.items, fmt::format("{}[{}]", path, i), param);
      }
    }
    for (const auto& [name, inner] : type.properties) {
      if (value.is_object() && value.contains(name) && !fits(value[name], *inner)) {
        const std::string within = fmt::format("{}.{}", path, name);
        reject_within(value[name], *inner, within, within);
      }
    }
  }
  const std::string size = value.is_array() ? fmt::format(" of {}", value.size()) : "";
  throw ApiError(
      400,
      fmt::format("{} is {}{}; expected {}", path, described(value), size, expected_words(type)),
      param, "invalid_value");
}

}  // namespace

ValueType value_type(const nlohmann::ordered_json& schema) {
  ValueType type{.kinds = kAnyKind,
                 .lowest = schema.value("minimum", -kInfinity),
                 .highest = schema.value("maximum", kInfinity),
                 .items = nullptr,
                 .properties = {}};
  if (const auto kinds = schema.find("type"); kinds != schema.end()) {
    type.kinds = 0;
    for (const auto& kind : kinds->is_array() ? *kinds : nlohmann::ordered_json::array({*kinds})) {
      type.kinds |= bit_of(kind.get<std::string>());
    }
  }
  if (const auto items = schema.find("items"); items != schema.end()) {
    type.items = std::make_shared<const ValueType>(value_type(*items));
  }
  if (const auto properties = schema.find("properties"); properties != schema.end()) {
    for (const auto& [name, inner] : properties->items()) {
      type.properties.emplace_back(name, std::make_shared<const ValueType>(value_type(inner)));
    }
  }
  return type;
}

void check_type(const json& value, const ValueType& type, const std::string& path) {
  if (!fits(value, type)) {
    reject_within(value, type, path, path);
  }
}

}  // namespace winnow::server
