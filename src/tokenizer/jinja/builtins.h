// The filters, tests, methods and functions that templates can use, by name.
#pragma once

#include <string_view>

#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

using Filter = Value (*)(Runtime& runtime, const Value& input, const Arguments& arguments);
using Test = bool (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

/// nullptr when there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

/// A function such as range; undefined when there is none of that name.
Value find_function(std::string_view name);

/// The method `name` of `object`, bound to it; undefined when its type has none.
Value find_method(const Value& object, std::string_view name);

}  // namespace winnow::jinja
