// Python's string formatting: % and str.format().
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

/// `format % arguments`: a tuple holds several arguments, a dict named ones.
std::string format_percent(Runtime& runtime, std::string_view format, const Value& arguments);

/// `format.format(*positional, **named)`; `named` is a dict.
std::string format_fields(Runtime& runtime, std::string_view format,
                          const std::vector<Value>& positional, const Value& named);

/// format(value, spec): [[fill]align][sign][#][0][width][grouping][.precision][type].
std::string format_value(Runtime& runtime, const Value& value, std::string_view spec);

}  // namespace winnow::jinja
