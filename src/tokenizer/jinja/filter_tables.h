// The filters by kind; find_filter looks through all of them.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/builtins.h"

namespace winnow::jinja {

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> number_filters();
std::span<const NamedFilter> sequence_filters();
std::span<const NamedFilter> selection_filters();
std::span<const NamedFilter> group_filters();
std::span<const NamedFilter> layout_filters();
std::span<const NamedFilter> markup_filters();

/// `items` sorted by their keys; stable.
std::vector<Value> sorted_by(Runtime& runtime, std::vector<Value> items,
                             const std::function<Value(const Value&)>& key);

/// The value for case-insensitive sorting or comparison: strings in lower case.
Value without_case(Runtime& runtime, const Value& value, bool case_sensitive);
/// The part of `item` at the path "a.b.0"; the item itself without a path.
Value part_named(Runtime& runtime, const Value& item, const Value& path);

}  // namespace winnow::jinja
