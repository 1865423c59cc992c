#include "tokenizer/jinja/arguments.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::jinja {

Bound::Bound(std::string_view what, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters)
    : what_(what), names_(parameters), values_(parameters.size()) {
  require(arguments.positional.size() <= names_.size(), "{}: {} arguments, expected at most {}",
          what, arguments.positional.size(), names_.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto at =
        static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    require(at < names_.size(), "{}: the argument '{}' is not supported", what, name);
    require(!values_[at], "{}: the argument '{}' is given twice", what, name);
    values_[at] = value;
  }
}

const Value& Bound::value(std::size_t i) const {
  require(values_[i].has_value(), "{}: the argument '{}' is missing", what_, names_[i]);
  return *values_[i];
}

Value Bound::value(std::size_t i, Value fallback) const {
  return values_[i].value_or(std::move(fallback));
}

bool Bound::boolean(std::size_t i, bool fallback) const {
  return values_[i] ? truthy(*values_[i]) : fallback;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t fallback) const {
  if (!values_[i] || values_[i]->is_none()) {
    return fallback;
  }
  const Value& value = require_defined(*values_[i]);
  require(value.integer() != nullptr || value.boolean() != nullptr,
          "{}: '{}' is a {}, expected an int", what_, names_[i], type_name(value));
  return value.integer() != nullptr ? *value.integer() : *value.boolean();
}

std::optional<std::string_view> Bound::text(std::size_t i) const {
  if (!values_[i] || values_[i]->is_none()) {
    return std::nullopt;
  }
  return required_text(i);
}

std::string_view Bound::required_text(std::size_t i) const {
  const Value& given = require_defined(value(i));
  require(given.text() != nullptr, "{}: '{}' is a {}, expected a str", what_, names_[i],
          type_name(given));
  return *given.text();
}

}  // namespace winnow::jinja
