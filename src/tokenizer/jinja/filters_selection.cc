// Filters that apply another filter or test to a list: map, select and the like.
#include <algorithm>
#include <array>
#include <charconv>

#include "tokenizer/jinja/filter_tables.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

std::string_view name_argument(std::string_view filter, const Arguments& arguments, std::size_t i) {
  require(i < arguments.positional.size() && arguments.positional[i].text() != nullptr,
          "{}: argument {} is a name", filter, i + 1);
  return *arguments.positional[i].text();
}

/// All but the first `count` positional arguments: the arguments of the named filter or test.
Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

/// The items that these filters visit: none for any false value, iterable or not.
std::vector<Value> items_of(Runtime& runtime, const Value& input) {
  return truthy(input) ? iterate(runtime, input) : std::vector<Value>{};
}

Value map_attribute(Runtime& runtime, const Value& input, const Arguments& arguments) {
  Value path;
  Value fallback = None{};
  for (const auto& [name, value] : arguments.named) {
    require(name == "attribute" || name == "default", "map: the argument '{}' is not supported",
            name);
    (name == "attribute" ? path : fallback) = value;
  }
  require(!path.is_undefined(), "map: the name of a filter or an attribute is missing");
  std::vector<Value> results;
  for (const Value& item : items_of(runtime, input)) {
    Value part = part_named(runtime, item, path);
    results.push_back(part.is_undefined() && !fallback.is_none() ? fallback : part);
  }
  return make_sequence(std::move(results), Sequence::Kind::lazy);
}

Value map(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return map_attribute(runtime, input, arguments);
  }
  const std::string_view name = name_argument("map", arguments, 0);
  const Filter filter = find_filter(name);
  require(filter != nullptr, "map: no filter is named '{}'", name);
  const Runtime::Level level(runtime);  // map can name map
  const Arguments rest = without_first(arguments, 1);
  std::vector<Value> results;
  for (const Value& item : items_of(runtime, input)) {
    runtime.spend(1 + extent_of(item).weight / 8);
    results.push_back(filter(runtime, item, rest));
  }
  return make_sequence(std::move(results), Sequence::Kind::lazy);
}

/// select, reject; with_attribute: selectattr, rejectattr. Without a test, true values are
/// selected.
template <bool wanted, bool with_attribute>
Value select(Runtime& runtime, const Value& input, const Arguments& arguments) {
  constexpr std::string_view kName = with_attribute ? "selectattr" : "select";
  constexpr std::size_t kTest = with_attribute ? 1 : 0;
  const Value path = with_attribute ? Value(name_argument(kName, arguments, 0)) : Value(None{});
  Test test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > kTest) {
    const std::string_view name = name_argument(kName, arguments, kTest);
    test = find_test(name);
    require(test != nullptr, "{}: no test is named '{}'", kName, name);
    rest = without_first(arguments, kTest + 1);
  }
  std::vector<Value> kept;
  for (const Value& item : items_of(runtime, input)) {
    runtime.spend(1);
    const Value part = part_named(runtime, item, path);
    if ((test != nullptr ? test(runtime, part, rest) : truthy(part)) == wanted) {
      kept.push_back(item);
    }
  }
  return make_sequence(std::move(kept), Sequence::Kind::lazy);
}

Value attr(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  const std::string_view name = name_argument("attr", arguments, 0);
  if (input.mapping() != nullptr) {  // dict entries are not attributes
    return find_method(input, name);
  }
  return attribute_of(input, name);
}

constexpr std::array<NamedFilter, 6> kSelectionFilters{{{"map", map},
                                                        {"select", select<true, false>},
                                                        {"reject", select<false, false>},
                                                        {"selectattr", select<true, true>},
                                                        {"rejectattr", select<false, true>},
                                                        {"attr", attr}}};

}  // namespace

std::span<const NamedFilter> selection_filters() {
  return kSelectionFilters;
}

Value without_case(Runtime& runtime, const Value& value, bool case_sensitive) {
  if (case_sensitive || value.text() == nullptr) {
    return value;
  }
  runtime.spend_text(value.text()->size() * 4);
  return to_lower(*value.text());
}

Value part_named(Runtime& runtime, const Value& item, const Value& path) {
  if (path.text() == nullptr) {
    return path.is_none() ? item : element_of(runtime, item, path);
  }
  Value part = item;
  for (const std::string_view name : split(*path.text(), ".", -1)) {
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = error == std::errc() && end == name.data() + name.size() && index >= 0;
    part = element_of(runtime, part, is_index ? Value(index) : Value(name));
  }
  return part;
}

Filter find_filter(std::string_view name) {
  for (const auto table :
       {text_filters(), number_filters(), sequence_filters(), selection_filters(), group_filters(),
        layout_filters(), markup_filters()}) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const NamedFilter& f) { return f.name == name; });
    if (found != table.end()) {
      return found->filter;
    }
  }
  return nullptr;
}

}  // namespace winnow::jinja
