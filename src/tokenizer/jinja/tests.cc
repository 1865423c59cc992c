// The tests: x is defined, x is divisibleby 3 ...
#include <algorithm>
#include <array>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

using Predicate = bool (*)(const Value&);

/// A test without arguments.
template <Predicate predicate>
bool plain(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  const Bound none("test", arguments, {});
  return predicate(input);
}

bool is_true(const Value& value) {
  return value.boolean() != nullptr && *value.boolean();
}
bool is_false(const Value& value) {
  return value.boolean() != nullptr && !*value.boolean();
}
bool is_sequence(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.is_undefined() || value.text() != nullptr || value.mapping() != nullptr ||
         (sequence != nullptr && sequence->indexable());
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.text() != nullptr || value.mapping() != nullptr ||
         value.sequence() != nullptr;
}

template <Operator op>
bool compared(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("test", arguments, {"other"});
  return compare(runtime, op, input, bound.value(0));
}

bool is_multiple(Runtime& runtime, const Value& input, const Value& of, std::int64_t rest) {
  return equals(arithmetic(runtime, Operator::modulo, input, of), rest);
}

template <int rest>
bool parity(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none(rest == 0 ? "even" : "odd", arguments, {});
  return is_multiple(runtime, input, 2, rest);
}

bool divisible(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"});
  return is_multiple(runtime, input, bound.value(0), 0);
}

template <Class wanted>
bool all_of(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("test", arguments, {});
  return is_all(to_text(runtime, input), wanted);
}

/// Identity, which a template can observe only for singletons and small values.
bool same(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"});
  const Value& other = bound.value(0);
  return type_name(input) == type_name(other) && compare(runtime, Operator::equal, input, other);
}

bool names_filter(Runtime& /*runtime*/, const Value& input, const Arguments& /*arguments*/) {
  return input.text() != nullptr && find_filter(*input.text()) != nullptr;
}
bool names_test(Runtime& /*runtime*/, const Value& input, const Arguments& /*arguments*/) {
  return input.text() != nullptr && find_test(*input.text()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  Test test;
};

constexpr NamedTest kTests[] = {
    {"defined", plain<[](const Value& v) { return !v.is_undefined(); }>},
    {"undefined", plain<[](const Value& v) { return v.is_undefined(); }>},
    {"none", plain<[](const Value& v) { return v.is_none(); }>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"boolean", plain<[](const Value& v) { return v.boolean() != nullptr; }>},
    {"integer", plain<[](const Value& v) { return v.integer() != nullptr; }>},
    {"float", plain<[](const Value& v) { return v.real() != nullptr; }>},
    {"number", plain<[](const Value& v) { return v.is_number(); }>},
    {"string", plain<[](const Value& v) { return v.text() != nullptr; }>},
    {"mapping", plain<[](const Value& v) { return v.mapping() != nullptr; }>},
    {"callable", plain<[](const Value& v) { return v.callable() != nullptr || v.is_undefined(); }>},
    {"escaped", plain<[](const Value&) { return false; }>},
    {"sequence", plain<is_sequence>},
    {"iterable", plain<is_iterable>},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"upper", all_of<Class::upper>},
    {"lower", all_of<Class::lower>},
    {"sameas", same},
    {"filter", names_filter},
    {"test", names_test},
    {"in", compared<Operator::in>},
    {"eq", compared<Operator::equal>},
    {"equalto", compared<Operator::equal>},
    {"==", compared<Operator::equal>},
    {"ne", compared<Operator::not_equal>},
    {"!=", compared<Operator::not_equal>},
    {"lt", compared<Operator::less>},
    {"lessthan", compared<Operator::less>},
    {"<", compared<Operator::less>},
    {"le", compared<Operator::less_equal>},
    {"<=", compared<Operator::less_equal>},
    {"gt", compared<Operator::greater>},
    {"greaterthan", compared<Operator::greater>},
    {">", compared<Operator::greater>},
    {"ge", compared<Operator::greater_equal>},
    {">=", compared<Operator::greater_equal>},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const NamedTest& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found->test;
}

}  // namespace winnow::jinja
