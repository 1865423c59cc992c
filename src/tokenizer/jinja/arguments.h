// The arguments of a filter, test, method or function, matched to its parameters.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

/// Error for arguments that are too many, unknown or given twice. A missing argument has the
/// fallback's value; so does none if a number or string is expected.
class Bound {
 public:
  Bound(std::string_view what, const Arguments& arguments,
        std::initializer_list<std::string_view> parameters);

  [[nodiscard]] bool has(std::size_t i) const { return values_[i].has_value(); }
  /// Error when it is not given.
  [[nodiscard]] const Value& value(std::size_t i) const;
  [[nodiscard]] Value value(std::size_t i, Value fallback) const;
  [[nodiscard]] bool boolean(std::size_t i, bool fallback) const;
  [[nodiscard]] std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  [[nodiscard]] std::optional<std::string_view> text(std::size_t i) const;
  /// Error when it is not given or no string.
  [[nodiscard]] std::string_view required_text(std::size_t i) const;

 private:
  std::string_view what_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace winnow::jinja
