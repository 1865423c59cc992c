// Filters on lists and dicts as a whole.
#include <algorithm>
#include <array>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/filter_tables.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

Value length(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("length", arguments, {});
  if (const std::string* text = input.text()) {
    runtime.spend(text->size() / 16);
    return count_characters(*text);
  }
  if (const Mapping* mapping = input.mapping()) {
    return mapping->entries.size();
  }
  const Sequence* sequence = input.sequence();
  if (sequence != nullptr && sequence->kind != Sequence::Kind::lazy) {
    return sequence->items.size();
  }
  require(input.is_undefined(), "length: a {} has none{}", type_name(input),
          sequence != nullptr ? "; use list first" : "");
  return 0;
}

Value list(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("list", arguments, {});
  return make_sequence(iterate(runtime, input));
}

Value first(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("first", arguments, {});
  const std::vector<Value> items = iterate(runtime, input);
  return items.empty() ? Value::undefined("first: the sequence is empty") : items.front();
}

Value last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("last", arguments, {});
  const bool lazy = input.sequence() != nullptr && input.sequence()->kind == Sequence::Kind::lazy;
  require(!lazy, "last: a {} has no last item; use list first", type_name(input));
  const std::vector<Value> items = iterate(runtime, input);
  return items.empty() ? Value::undefined("last: the sequence is empty") : items.back();
}

Value reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("reverse", arguments, {});
  std::vector<Value> items = iterate(runtime, input);
  std::reverse(items.begin(), items.end());
  if (input.text() == nullptr) {
    return make_sequence(std::move(items), Sequence::Kind::lazy);
  }
  std::string text;
  for (const Value& item : items) {
    text += *item.text();
  }
  return text;
}

Value default_(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (bound.boolean(1, false) && !truthy(input));
  return replaced ? bound.value(0, "") : input;
}

Value items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("items", arguments, {});
  if (input.is_undefined()) {
    return make_sequence({}, Sequence::Kind::lazy);
  }
  require(input.mapping() != nullptr, "items: a {} has none", type_name(input));
  std::vector<Value> pairs;
  runtime.spend_items(input.mapping()->entries.size() * 3);
  for (const auto& [key, value] : input.mapping()->entries) {
    pairs.push_back(make_sequence({key, value}, Sequence::Kind::tuple));
  }
  return make_sequence(std::move(pairs), Sequence::Kind::lazy);
}

/// Stable, also in reverse, like Python's sorted.
std::vector<Value> sorted(Runtime& runtime, std::vector<std::pair<Value, Value>> keyed,
                          bool descending) {
  std::uint64_t weight = 1;
  for (const auto& entry : keyed) {
    weight += extent_of(entry.first).weight +
              (entry.first.text() != nullptr ? entry.first.text()->size() / 8 : 0);
  }
  runtime.spend(weight * 20);  // every key is compared with about log2(n) others
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? less(b.first, a.first) : less(a.first, b.first);
  });
  std::vector<Value> values;
  values.reserve(keyed.size());
  for (auto& entry : keyed) {
    values.push_back(std::move(entry.second));
  }
  return values;
}

/// The key of sort(attribute="a,b"): several parts form a list.
Value sort_key(Runtime& runtime, const Value& item, const Value& paths, bool case_sensitive) {
  std::vector<Value> key;
  if (paths.text() == nullptr) {
    key.push_back(without_case(runtime, part_named(runtime, item, paths), case_sensitive));
  } else {
    for (const std::string_view path : split(*paths.text(), ",", -1)) {
      key.push_back(without_case(runtime, part_named(runtime, item, path), case_sensitive));
    }
  }
  return make_sequence(std::move(key));
}

Value sort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(runtime, input)) {
    keyed.emplace_back(sort_key(runtime, item, bound.value(2, None{}), bound.boolean(1, false)),
                       item);
  }
  return make_sequence(sorted(runtime, std::move(keyed), bound.boolean(0, false)));
}

Value dictsort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  require_defined(input);
  require(input.mapping() != nullptr, "dictsort: a {} is no dict", type_name(input));
  const std::string_view by = bound.text(1).value_or("key");
  require(by == "key" || by == "value", "dictsort: sorts by key or value, not by '{}'", by);
  std::vector<std::pair<Value, Value>> keyed;
  runtime.spend_items(input.mapping()->entries.size() * 4);
  for (const auto& [key, value] : input.mapping()->entries) {
    keyed.emplace_back(without_case(runtime, by == "key" ? key : value, bound.boolean(0, false)),
                       make_sequence({key, value}, Sequence::Kind::tuple));
  }
  return make_sequence(sorted(runtime, std::move(keyed), bound.boolean(2, false)));
}

Value unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : iterate(runtime, input)) {
    Value key = without_case(runtime, part_named(runtime, item, bound.value(1, None{})),
                             bound.boolean(0, false));
    require_hashable(key);
    runtime.spend((seen.size() + 1) * extent_of(key).weight);
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return equals(other, key); });
    if (!known) {
      seen.push_back(std::move(key));
      kept.push_back(item);
    }
  }
  return make_sequence(std::move(kept), Sequence::Kind::lazy);
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  Value best = Value::undefined("the sequence is empty");
  Value best_key;
  bool first = true;
  for (const Value& item : iterate(runtime, input)) {
    Value key = without_case(runtime, part_named(runtime, item, bound.value(1, None{})),
                             bound.boolean(0, false));
    runtime.spend(extent_of(key).weight);
    if (first || (largest ? less(best_key, key) : less(key, best_key))) {
      best = item;
      best_key = std::move(key);
    }
    first = false;
  }
  return best;
}

Value sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Value total = bound.value(1, 0);
  require(total.text() == nullptr, "sum: strings are joined with join");
  for (const Value& item : iterate(runtime, input)) {
    total = arithmetic(runtime, Operator::add, total,
                       part_named(runtime, item, bound.value(0, None{})));
  }
  return total;
}

constexpr std::array<NamedFilter, 15> kSequenceFilters{{{"length", length},
                                                        {"count", length},
                                                        {"list", list},
                                                        {"first", first},
                                                        {"last", last},
                                                        {"reverse", reverse},
                                                        {"default", default_},
                                                        {"d", default_},
                                                        {"items", items},
                                                        {"sort", sort},
                                                        {"dictsort", dictsort},
                                                        {"unique", unique},
                                                        {"min", extreme<false>},
                                                        {"max", extreme<true>},
                                                        {"sum", sum}}};

}  // namespace

std::vector<Value> sorted_by(Runtime& runtime, std::vector<Value> items,
                             const std::function<Value(const Value&)>& key) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    Value its_key = key(item);
    keyed.emplace_back(std::move(its_key), std::move(item));
  }
  return sorted(runtime, std::move(keyed), /*descending=*/false);
}

std::span<const NamedFilter> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace winnow::jinja
