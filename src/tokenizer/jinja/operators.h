// Python's operators and subscripts.
#pragma once

#include <string_view>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/value.h"

namespace winnow::jinja {

/// Arithmetic; + and * also join and repeat strings and lists.
Value arithmetic(Runtime& runtime, Operator op, const Value& left, const Value& right);
Value signed_value(bool negative, const Value& operand);
/// ==, <, in ...
bool compare(Runtime& runtime, Operator op, const Value& left, const Value& right);
bool contains(Runtime& runtime, const Value& container, const Value& item);

/// object.name in templates: a method, else the entry of a dict, else undefined.
Value attribute_of(const Value& object, std::string_view name);
/// object[key]: an entry or element, else the result of attribute_of, else undefined.
Value element_of(Runtime& runtime, const Value& object, const Value& key);
/// object[start:stop:step]; a part that is left out is none.
Value slice_of(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step);

/// The items that a for loop visits: elements, keys of a dict, characters; none for undefined.
std::vector<Value> iterate(Runtime& runtime, const Value& value);

}  // namespace winnow::jinja
