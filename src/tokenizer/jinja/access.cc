// Comparisons, and access to parts of values: attributes, elements, slices.
#include <algorithm>
#include <optional>

#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

Value loop_attribute(const Loop& loop, std::string_view name) {
  const std::vector<Value>& items = loop.run->items.items;
  const auto count = static_cast<std::int64_t>(items.size());
  const auto index = static_cast<std::int64_t>(loop.index);
  if (name == "index") {
    return index + 1;
  }
  if (name == "index0") {
    return index;
  }
  if (name == "revindex") {
    return count - index;
  }
  if (name == "revindex0") {
    return count - index - 1;
  }
  if (name == "first") {
    return index == 0;
  }
  if (name == "last") {
    return index + 1 == count;
  }
  if (name == "length") {
    return count;
  }
  if (name == "depth" || name == "depth0") {
    return loop.run->depth - (name == "depth" ? 0 : 1);
  }
  if (name == "previtem") {
    return index == 0 ? Value::undefined("there is no previous item") : items[loop.index - 1];
  }
  if (name == "nextitem") {
    return index + 1 == count ? Value::undefined("there is no next item") : items[loop.index + 1];
  }
  return Value::undefined(fmt::format("the loop has no attribute '{}'", name));
}

/// The position of an index in `size` elements, or nullopt.
std::optional<std::size_t> position(const Value& key, std::size_t size) {
  if (key.integer() == nullptr && key.boolean() == nullptr) {
    return std::nullopt;
  }
  std::int64_t index = key.integer() != nullptr ? *key.integer() : *key.boolean();
  if (index < 0) {
    index += static_cast<std::int64_t>(size);
  }
  if (index < 0 || index >= static_cast<std::int64_t>(size)) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(index);
}

std::optional<Value> entry_of(Runtime& runtime, const Value& object, const Value& key) {
  if (const Mapping* mapping = object.mapping()) {
    runtime.spend(mapping->entries.size() / 8);
    const Value* found = mapping->find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (const std::string* text = object.text()) {
    runtime.spend(text->size() / 8);
    const auto at = position(key, count_characters(*text));
    return at ? std::optional<Value>(characters(*text)[*at]) : std::nullopt;
  }
  const Sequence* sequence = object.sequence();
  if (sequence != nullptr && sequence->indexable()) {
    const auto at = position(key, sequence->items.size());
    return at ? std::optional(sequence->items[*at]) : std::nullopt;
  }
  return std::nullopt;
}

std::int64_t slice_number(const Value& value, std::int64_t fallback) {
  if (value.is_none()) {
    return fallback;
  }
  require(value.integer() != nullptr || value.boolean() != nullptr,
          "the bounds of a slice are ints, not a {}", type_name(require_defined(value)));
  return value.integer() != nullptr ? *value.integer() : *value.boolean();
}

/// The elements that a slice of `size` elements selects, as Python's slice.indices.
std::vector<std::size_t> slice_indices(std::size_t size, const Value& start, const Value& stop,
                                       const Value& step) {
  const std::int64_t stride = slice_number(step, 1);
  require(stride != 0, "the step of a slice is zero");
  const auto count = static_cast<std::int64_t>(size);
  const std::int64_t low = stride > 0 ? 0 : -1;
  const std::int64_t high = stride > 0 ? count : count - 1;
  const auto bound = [&](const Value& value, std::int64_t fallback) {
    const std::int64_t at = slice_number(value, fallback);
    return value.is_none() ? fallback : std::clamp(at < 0 ? at + count : at, low, high);
  };
  const std::int64_t end = bound(stop, stride > 0 ? high : low);
  std::vector<std::size_t> indices;
  for (std::int64_t i = bound(start, stride > 0 ? low : high); stride > 0 ? i < end : i > end;) {
    indices.push_back(static_cast<std::size_t>(i));
    if (__builtin_add_overflow(i, stride, &i)) {
      break;
    }
  }
  return indices;
}

bool less_or_equal(const Value& a, const Value& b) {
  return less(a, b) || equals(a, b);
}

}  // namespace

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  runtime.spend(extent_of(container).weight);
  if (const std::string* text = container.text()) {
    const std::string* part = item.text();
    require(part != nullptr, "only a str can be in a str, not a {}",
            type_name(require_defined(item)));
    runtime.spend_search(*text, *part);
    return text->find(*part) != std::string::npos;
  }
  if (const Mapping* mapping = container.mapping()) {
    require_hashable(item);
    return mapping->find(item) != nullptr;
  }
  if (const Sequence* sequence = container.sequence()) {
    return std::any_of(sequence->items.begin(), sequence->items.end(),
                       [&](const Value& other) { return equals(other, item); });
  }
  require(container.is_undefined(), "a {} contains nothing", type_name(container));
  return false;
}

bool compare(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  runtime.spend(std::min(extent_of(left).weight, extent_of(right).weight));
  switch (op) {
    case Operator::equal:
      return equals(left, right);
    case Operator::not_equal:
      return !equals(left, right);
    case Operator::less:
      return less(left, right);
    case Operator::less_equal:
      return less_or_equal(left, right);
    case Operator::greater:
      return less(right, left);
    case Operator::greater_equal:
      return less_or_equal(right, left);
    case Operator::in:
      return contains(runtime, right, left);
    default:
      return !contains(runtime, right, left);
  }
}

Value attribute_of(const Value& object, std::string_view name) {
  require_defined(object);
  const Loop* loop = object.loop();
  if (loop != nullptr && name != "cycle" && name != "changed") {
    return loop_attribute(*loop, name);
  }
  if (const Namespace* space = object.space()) {
    const Value* found = space->find(name);
    return found != nullptr ? *found
                            : Value::undefined(fmt::format("the namespace has no '{}'", name));
  }
  if (object.callable() != nullptr && object.callable()->attribute) {
    return object.callable()->attribute(name);
  }
  if (object.sequence() != nullptr && object.sequence()->is_group &&
      (name == "grouper" || name == "list")) {
    return object.sequence()->items[name == "grouper" ? 0 : 1];
  }
  Value method = find_method(object, name);
  if (!method.is_undefined() || object.mapping() == nullptr) {
    return method;
  }
  const Value* found = object.mapping()->find(name);
  return found != nullptr ? *found
                          : Value::undefined(fmt::format("the dict has no key '{}'", name));
}

Value element_of(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(object);
  if (std::optional<Value> entry = entry_of(runtime, object, key)) {
    return *std::move(entry);
  }
  if (const std::string* name = key.text()) {
    return attribute_of(object, *name);
  }
  return Value::undefined(
      fmt::format("the {} has no element {}", type_name(object), repr(runtime, key)));
}

Value slice_of(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
               const Value& step) {
  require_defined(object);
  if (const std::string* text = object.text()) {
    runtime.spend_text(text->size() * 4);
    const std::vector<std::string_view> all = characters(*text);
    std::string out;
    for (const std::size_t i : slice_indices(all.size(), start, stop, step)) {
      out += all[i];
    }
    return out;
  }
  const Sequence* sequence = object.sequence();
  require(sequence != nullptr && sequence->indexable(), "a {} has no slices", type_name(object));
  runtime.spend_items(sequence->items.size());
  std::vector<Value> items;
  for (const std::size_t i : slice_indices(sequence->items.size(), start, stop, step)) {
    items.push_back(sequence->items[i]);
  }
  return make_sequence(std::move(items), sequence->kind);
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  if (const Sequence* sequence = value.sequence()) {
    runtime.spend_items(sequence->items.size());
    return sequence->items;
  }
  std::vector<Value> items;
  if (const Mapping* mapping = value.mapping()) {
    runtime.spend_items(mapping->entries.size());
    for (const auto& entry : mapping->entries) {
      items.push_back(entry.first);
    }
  } else if (const std::string* text = value.text()) {
    runtime.spend_items(count_characters(*text));
    for (const std::string_view character : characters(*text)) {
      items.emplace_back(character);
    }
  } else {
    require(value.is_undefined(), "a {} cannot be iterated over", type_name(value));
  }
  return items;
}

}  // namespace winnow::jinja
