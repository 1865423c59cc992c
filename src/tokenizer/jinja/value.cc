#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

constexpr int kDeepestValue = 100;
constexpr std::uint64_t kMaxWeight = 10'000'000;

void add_part(Extent& whole, const Value& part) {
  const Extent extent = extent_of(part);
  whole.depth = std::max(whole.depth, extent.depth + 1);
  whole.weight += extent.weight;
  whole.has_space = whole.has_space || extent.has_space;
  whole.has_object = whole.has_object || extent.has_object;
  require(whole.depth <= kDeepestValue, "values nest deeper than {}", kDeepestValue);
  require(whole.weight <= kMaxWeight, "a value has more than {} parts", kMaxWeight);
}

bool has_key(const Mapping::Entries& entries, const Value& key, std::size_t* at) {
  for (*at = 0; *at < entries.size(); ++*at) {
    if (equals(entries[*at].first, key)) {
      return true;
    }
  }
  return false;
}

Value mapping_of_unique(Mapping::Entries entries) {
  auto mapping = std::make_shared<Mapping>();
  for (const auto& [key, value] : entries) {
    add_part(mapping->extent, key);
    add_part(mapping->extent, value);
  }
  mapping->entries = std::move(entries);
  return std::shared_ptr<const Mapping>(std::move(mapping));
}

Value from_json_at(const nlohmann::ordered_json& json, int depth);

Value object_from_json(const nlohmann::ordered_json& json, int depth) {
  Mapping::Entries entries;
  entries.reserve(json.size());
  for (const auto& [key, value] : json.items()) {
    entries.emplace_back(Value(to_valid_utf8(key)), from_json_at(value, depth));
  }
  return mapping_of_unique(std::move(entries));
}

Value from_json_at(const nlohmann::ordered_json& json, int depth) {
  require(depth <= kDeepestValue, "values nest deeper than {}", kDeepestValue);
  if (json.is_null() || json.is_discarded()) {
    return None{};
  }
  if (json.is_boolean()) {
    return json.get<bool>();
  }
  if (json.is_number_unsigned()) {
    const auto number = json.get<std::uint64_t>();
    require(number <= std::numeric_limits<std::int64_t>::max(), "the integer {} is too large",
            number);
    return number;
  }
  if (json.is_number_integer()) {
    return json.get<std::int64_t>();
  }
  if (json.is_number_float()) {
    return json.get<double>();
  }
  if (json.is_string()) {
    return to_valid_utf8(json.get_ref<const std::string&>());
  }
  if (json.is_object()) {
    return object_from_json(json, depth + 1);
  }
  std::vector<Value> items;
  items.reserve(json.size());
  for (const auto& item : json) {
    items.push_back(from_json_at(item, depth + 1));
  }
  return make_sequence(std::move(items));
}

/// Exact even if an int has no equal double.
int compare_numbers(const Value& a, const Value& b) {
  const auto whole = [](const Value& v) { return v.boolean() ? *v.boolean() : *v.integer(); };
  if (a.real() == nullptr && b.real() == nullptr) {
    return whole(a) < whole(b) ? -1 : static_cast<int>(whole(a) > whole(b));
  }
  const auto as_real = [&](const Value& v) {
    return v.real() ? static_cast<long double>(*v.real()) : static_cast<long double>(whole(v));
  };
  return as_real(a) < as_real(b) ? -1 : static_cast<int>(as_real(a) > as_real(b));
}

bool is_nan(const Value& value) {
  return value.real() != nullptr && std::isnan(*value.real());
}

bool equal_sequences(const Sequence& a, const Sequence& b) {
  return &a == &b || (a.kind == b.kind && std::equal(a.items.begin(), a.items.end(),
                                                     b.items.begin(), b.items.end(), equals));
}

bool equal_mappings(const Mapping& a, const Mapping& b) {
  return &a == &b || (a.entries.size() == b.entries.size() &&
                      std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
                        const Value* other = b.find(entry.first);
                        return other != nullptr && equals(entry.second, *other);
                      }));
}

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

const Value* Mapping::find(const Value& key) const {
  std::size_t at = 0;
  return has_key(entries, key, &at) ? &entries[at].second : nullptr;
}

const Value* Mapping::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.text() != nullptr && *name.text() == key) {
      return &value;
    }
  }
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  require(!name.starts_with('_'), "a namespace cannot have an attribute named '{}'", name);
  require(!extent_of(value).has_space, "a namespace cannot hold another namespace");
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

Value make_sequence(std::vector<Value> items, Sequence::Kind kind) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& item : items) {
    add_part(sequence->extent, item);
  }
  sequence->items = std::move(items);
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

Value make_mapping(Mapping::Entries entries) {
  Mapping::Entries unique;
  for (auto& entry : entries) {
    require_hashable(entry.first);
    std::size_t at = 0;
    if (has_key(unique, entry.first, &at)) {
      unique[at].second = std::move(entry.second);
    } else {
      unique.push_back(std::move(entry));
    }
  }
  return mapping_of_unique(std::move(unique));
}

Value make_callable(std::string name, std::function<Value(Runtime&, const Arguments&)> function) {
  return std::make_shared<const Callable>(Callable{std::move(name), std::move(function)});
}

Value from_json(const nlohmann::ordered_json& json) {
  return from_json_at(json, 0);
}

Extent extent_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) {
    return sequence->extent;
  }
  if (const Mapping* mapping = value.mapping()) {
    return mapping->extent;
  }
  if (value.space() != nullptr) {
    return {.has_space = true};
  }
  if (const Loop* loop = value.loop()) {
    Extent extent = loop->run->items.extent;
    extent.has_object = true;
    return extent;
  }
  return {.has_object = value.callable() != nullptr};
}

bool truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) {
    return false;
  }
  if (const bool* b = value.boolean()) {
    return *b;
  }
  if (const std::int64_t* i = value.integer()) {
    return *i != 0;
  }
  if (const double* d = value.real()) {
    return *d != 0.0;
  }
  if (const std::string* text = value.text()) {
    return !text->empty();
  }
  if (const Sequence* sequence = value.sequence()) {
    return sequence->kind == Sequence::Kind::lazy || !sequence->items.empty();
  }
  const Mapping* mapping = value.mapping();
  return mapping == nullptr || !mapping->entries.empty();
}

bool equals(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    return *a.text() == *b.text();
  }
  if (a.sequence() != nullptr && b.sequence() != nullptr) {
    return equal_sequences(*a.sequence(), *b.sequence());
  }
  if (a.mapping() != nullptr && b.mapping() != nullptr) {
    return equal_mappings(*a.mapping(), *b.mapping());
  }
  if (a.is_undefined() || a.is_none()) {
    return (a.is_undefined() && b.is_undefined()) || (a.is_none() && b.is_none());
  }
  return (a.space() != nullptr && a.space() == b.space()) ||
         (a.callable() != nullptr && a.callable() == b.callable()) ||
         (a.loop() != nullptr && a.loop() == b.loop());
}

bool less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) < 0;
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    return *a.text() < *b.text();  // the order of UTF-8 is the order of code points
  }
  const Sequence* x = a.sequence();
  const Sequence* y = b.sequence();
  if (x != nullptr && y != nullptr && x->kind == y->kind && x->indexable()) {
    const auto [i, j] =
        std::mismatch(x->items.begin(), x->items.end(), y->items.begin(), y->items.end(), equals);
    return i == x->items.end() || j == y->items.end() ? j != y->items.end() : less(*i, *j);
  }
  require_defined(a);
  require_defined(b);
  fail("a {} and a {} have no order", type_name(a), type_name(b));
}

std::string_view type_name(const Value& value) {
  if (const Sequence* sequence = value.sequence()) {
    constexpr std::array names{"list",      "tuple",       "generator",
                               "dict_keys", "dict_values", "dict_items"};
    return names.at(static_cast<std::size_t>(sequence->kind));
  }
  return value.is_undefined()          ? "Undefined"
         : value.is_none()             ? "NoneType"
         : value.boolean() != nullptr  ? "bool"
         : value.integer() != nullptr  ? "int"
         : value.real() != nullptr     ? "float"
         : value.text() != nullptr     ? "str"
         : value.mapping() != nullptr  ? "dict"
         : value.space() != nullptr    ? "Namespace"
         : value.callable() != nullptr ? "function"
                                       : "LoopContext";
}

void require_hashable(const Value& key) {
  const Sequence* sequence = key.sequence();
  const bool tuple = sequence != nullptr && sequence->kind == Sequence::Kind::tuple;
  require((sequence == nullptr || tuple) && key.mapping() == nullptr,
          "a {} cannot be the key of a dict", type_name(key));
  if (tuple) {
    std::for_each(sequence->items.begin(), sequence->items.end(), require_hashable);
  }
}

const Value& require_defined(const Value& value) {
  if (const Undefined* undefined = value.undefined()) {
    fail("{}", undefined->why ? *undefined->why : "an undefined value is used");
  }
  return value;
}

}  // namespace winnow::jinja
