// Typed access to JSON from a file; errors say where.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace winnow {

/// The file is well formed, but requires a feature that winnow does not support.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// A value of a JSON document with its path: "tokenizer.json: model.merges[3]". A missing
/// member reads as null. Every as_...() throws Error when the value has another type.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, std::string where)
      : value_(&value), where_(std::move(where)) {}

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const nlohmann::json& json() const { return *value_; }
  [[nodiscard]] bool is_null() const { return value_->is_null(); }
  [[nodiscard]] bool is_string() const { return value_->is_string(); }
  [[nodiscard]] bool is_array() const { return value_->is_array(); }
  [[nodiscard]] bool is_object() const { return value_->is_object(); }

  /// The member `name` of an object.
  [[nodiscard]] JsonField operator[](std::string_view name) const;
  /// The elements of an array.
  [[nodiscard]] std::vector<JsonField> elements() const;

  [[nodiscard]] const std::string& as_string() const;
  [[nodiscard]] bool as_bool() const;
  [[nodiscard]] bool as_bool_or(bool fallback) const { return is_null() ? fallback : as_bool(); }
  /// A token id: an integer in [0, kMaxTokenId].
  [[nodiscard]] std::int32_t as_id() const;

  /// The member "type" of a component such as a normalizer.
  [[nodiscard]] const std::string& type() const { return (*this)["type"].as_string(); }

  /// Throws Error "<where>: expected <what>, found <kind of value>".
  [[noreturn]] void expected(std::string_view what) const;
  /// Throws Unsupported "<where>: <what> is not supported".
  [[noreturn]] void unsupported(std::string_view what) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

/// Larger ids count as corrupt: no vocabulary is that large.
inline constexpr std::int32_t kMaxTokenId = (1 << 21) - 1;

/// Parses `text`; Error naming `name` and the position when it is not JSON. (Without the check for
/// repeated keys in src/checkpoint: vocabularies are large.)
nlohmann::json read_json_text(std::string_view text, const std::string& name);

}  // namespace winnow
