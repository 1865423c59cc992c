// Filters that split a list.
#include <algorithm>
#include <array>
#include <random>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/filter_tables.h"
#include "tokenizer/jinja/operators.h"

namespace winnow::jinja {
namespace {

constexpr std::int64_t kMostParts = 1'000'000;

Value lazy(std::vector<Value> items) {
  return make_sequence(std::move(items), Sequence::Kind::lazy);
}

/// Lists of `linecount` items each.
Value batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"});
  require(bound.has(0), "the number of items or parts is missing");
  const std::int64_t size = bound.integer(0, 0);
  const Value fill = bound.value(1, None{});
  std::vector<Value> lines;
  std::vector<Value> line;
  for (Value& item : iterate(runtime, input)) {
    if (static_cast<std::int64_t>(line.size()) == size) {
      runtime.spend_items(line.size());
      lines.push_back(make_sequence(std::exchange(line, {})));
    }
    line.push_back(std::move(item));
  }
  if (!line.empty()) {
    require(size <= kMostParts, "batch: {} is too large", size);
    if (!fill.is_none() && static_cast<std::int64_t>(line.size()) < size) {
      runtime.spend_items(static_cast<std::size_t>(size));
      line.resize(static_cast<std::size_t>(size), fill);
    }
    lines.push_back(make_sequence(std::move(line)));
  }
  return lazy(std::move(lines));
}

/// This many lists; the first ones are longer by one if the division has a remainder.
Value slice(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"});
  require(bound.has(0), "the number of items or parts is missing");
  const std::int64_t slices = bound.integer(0, 0);
  require(slices != 0 && slices <= kMostParts, "slice: expected from 1 to {} slices, got {}",
          kMostParts, slices);
  const Value fill = bound.value(1, None{});
  const std::vector<Value> items = iterate(runtime, input);
  const auto size = static_cast<std::int64_t>(items.size());
  std::vector<Value> parts;
  auto begin = items.begin();
  for (std::int64_t i = 0; i < slices; ++i) {
    const bool longer = i < size % slices;
    const auto end = begin + size / slices + (longer ? 1 : 0);
    std::vector<Value> part(begin, end);
    if (!fill.is_none() && !longer) {
      part.push_back(fill);
    }
    runtime.spend_items(part.size());
    parts.push_back(make_sequence(std::move(part)));
    begin = end;
  }
  return lazy(std::move(parts));
}

Value make_group(const Value& grouper, std::vector<Value> items) {
  auto group = std::make_shared<Sequence>(
      *make_sequence({grouper, make_sequence(std::move(items))}, Sequence::Kind::tuple).sequence());
  group->is_group = true;
  return std::shared_ptr<const Sequence>(std::move(group));
}

/// Pairs of an attribute's value and the list of items with this value, sorted by value.
Value groupby(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const auto part = [&](const Value& item) {
    Value found = part_named(runtime, item, bound.value(0));
    return found.is_undefined() && bound.has(1) && !bound.value(1).is_none() ? bound.value(1)
                                                                             : found;
  };
  const bool case_sensitive = bound.boolean(2, false);
  const auto key_of = [&](const Value& item) {
    return without_case(runtime, part(item), case_sensitive);
  };
  const std::vector<Value> items = sorted_by(runtime, iterate(runtime, input), key_of);
  std::vector<Value> groups;
  for (auto begin = items.begin(); begin != items.end();) {
    const Value key = key_of(*begin);
    const auto end = std::find_if(begin, items.end(),
                                  [&](const Value& item) { return !equals(key_of(item), key); });
    runtime.spend_items(static_cast<std::size_t>(end - begin));
    groups.push_back(make_group(case_sensitive ? key : part(*begin), {begin, end}));
    begin = end;
  }
  return make_sequence(std::move(groups));
}

Value random(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("random", arguments, {});
  const std::vector<Value> items = iterate(runtime, input);
  if (items.empty()) {
    return Value::undefined("random: the sequence is empty");
  }
  static thread_local std::mt19937 engine{std::random_device{}()};
  return items[std::uniform_int_distribution<std::size_t>(0, items.size() - 1)(engine)];
}

constexpr std::array<NamedFilter, 4> kGroupFilters{
    {{"batch", batch}, {"slice", slice}, {"groupby", groupby}, {"random", random}}};

}  // namespace

std::span<const NamedFilter> group_filters() {
  return kGroupFilters;
}

}  // namespace winnow::jinja
