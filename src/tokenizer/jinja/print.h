// Values as text: Python's str() and repr(), and its json.dumps().
#pragma once

#include <optional>
#include <string>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

/// What {{ value }} prints.
std::string to_text(Runtime& runtime, const Value& value);
std::string repr(Runtime& runtime, const Value& value);
/// Python's repr of a float: the shortest digits that read back equal.
std::string float_repr(double value);

struct JsonStyle {
  bool ascii = false;                 // escapes all non-ASCII characters as \uXXXX
  std::optional<std::string> indent;  // per level; nullopt: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

/// json.dumps; Error for values that JSON does not have (undefined, macros ...).
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace winnow::jinja
