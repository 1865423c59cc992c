// The methods of strings and dicts.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/method_tables.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

using DictMethod = Value (*)(Runtime&, const Mapping&, const Arguments&);

template <std::string (*function)(std::string_view)>
Value cased(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound none("method", arguments, {});
  runtime.spend_text(text.size() * 4);
  return function(text);
}

template <Class wanted>
Value is_all_of(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound none("method", arguments, {});
  runtime.spend_text(text.size());
  return is_all(text, wanted);
}

template <Ends ends>
Value stripped(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"chars"});
  runtime.spend_search(text, bound.text(0).value_or(""));
  runtime.spend_text(text.size());
  return strip(text, ends, bound.text(0));
}

Value list_of(Runtime& runtime, const std::vector<std::string_view>& parts) {
  runtime.spend_items(parts.size());
  return make_sequence(std::vector<Value>(parts.begin(), parts.end()));
}

template <auto function>
Value split_method(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  runtime.spend_search(text, bound.text(0).value_or(""));
  runtime.spend_text(text.size());
  return list_of(runtime, function(text, bound.text(0), bound.integer(1, -1)));
}

Value splitlines(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  runtime.spend_text(text.size());
  return list_of(runtime, split_lines(text, bound.boolean(0, false)));
}

/// The part of `text` from character bound.value(i) up to, not including, bound.value(i + 1), with
/// Python's slice rules; `before`: the number of characters before it. nullopt when it begins after
/// the text's end.
std::optional<std::string_view> part_of(std::string_view text, const Bound& bound, std::size_t i,
                                        std::int64_t& before) {
  before = 0;
  if (!bound.has(i) && !bound.has(i + 1)) {
    return text;
  }
  const auto size = static_cast<std::int64_t>(count_characters(text));
  const auto position = [&](std::size_t at, std::int64_t fallback) {
    const std::int64_t given = bound.integer(at, fallback);
    return std::max<std::int64_t>(given < 0 ? given + size : given, 0);
  };
  before = position(i, 0);
  const std::int64_t end = std::min(position(i + 1, size), size);
  if (before > size || before > end) {
    return std::nullopt;
  }
  text = text.substr(0, bytes_of_characters(text, static_cast<std::size_t>(end)));
  return text.substr(bytes_of_characters(text, static_cast<std::size_t>(before)));
}

/// startswith(x) and endswith(x), where x may be a tuple of strings.
template <bool at_end>
Value has_affix(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"});
  std::int64_t before = 0;
  runtime.spend_text(bound.has(1) ? text.size() : 0);
  const std::optional<std::string_view> part = part_of(text, bound, 1, before);
  if (!part) {
    return false;
  }
  text = *part;
  const auto matches = [&](const Value& affix) {
    require(affix.text() != nullptr, "startswith and endswith look for a str, not a {}",
            type_name(require_defined(affix)));
    return at_end ? text.ends_with(*affix.text()) : text.starts_with(*affix.text());
  };
  const Sequence* several = bound.value(0).sequence();
  return several != nullptr && several->kind == Sequence::Kind::tuple
             ? std::any_of(several->items.begin(), several->items.end(), matches)
             : matches(bound.value(0));
}

template <bool at_end>
Value remove_affix(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", arguments, {"affix"});
  const std::string_view affix = bound.required_text(0);
  runtime.spend_text(text.size());
  if (at_end ? text.ends_with(affix) : text.starts_with(affix)) {
    at_end ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  return text;
}

Value replace_method(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const std::string_view old = bound.required_text(0);
  const std::string_view with = bound.required_text(1);
  runtime.spend_search(text, old);
  runtime.spend_text(old.empty() ? (text.size() + 1) * (with.size() + 1)
                                 : text.size() + text.size() / old.size() * with.size());
  return replace(text, old, with, bound.integer(2, -1));
}

template <bool from_end, bool must_exist>
Value find(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound(must_exist ? "index" : "find", arguments, {"sub", "start", "end"});
  const std::string_view part = bound.required_text(0);
  runtime.spend_search(text, part);
  std::int64_t before = 0;
  const std::optional<std::string_view> inside = part_of(text, bound, 1, before);
  text = inside.value_or("");
  const std::size_t at = !inside    ? std::string_view::npos
                         : from_end ? text.rfind(part)
                                    : text.find(part);
  require(!must_exist || at != std::string_view::npos, "index: the str does not contain '{}'",
          part);
  return at == std::string_view::npos
             ? Value(-1)
             : Value(before + static_cast<std::int64_t>(count_characters(text.substr(0, at))));
}

Value count(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("count", arguments, {"sub", "start", "end"});
  const std::string_view part = bound.required_text(0);
  runtime.spend_search(text, part);
  std::int64_t before = 0;
  const std::optional<std::string_view> inside = part_of(text, bound, 1, before);
  if (!inside) {
    return 0;
  }
  text = *inside;
  if (part.empty()) {
    return count_characters(text) + 1;
  }
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos;) {
    ++found;
    at += part.size();
  }
  return found;
}

Value join(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("join", arguments, {"iterable"});
  std::string out;
  bool first = true;
  for (const Value& item : iterate(runtime, require_defined(bound.value(0)))) {
    require(item.text() != nullptr, "join: an item is a {}, expected a str", type_name(item));
    runtime.spend_text(text.size() + item.text()->size());
    out += first ? "" : text;
    out += *item.text();
    runtime.spend(out.size() > Runtime::kMaxText ? Runtime::kUnits + 1 : 1);
    first = false;
  }
  return out;
}

template <bool from_end>
Value partition(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"sep"});
  const std::string_view separator = bound.required_text(0);
  require(!separator.empty(), "partition: the separator is empty");
  runtime.spend_search(text, separator);
  runtime.spend_text(text.size());
  const std::size_t at = from_end ? text.rfind(separator) : text.find(separator);
  std::vector<Value> parts;
  if (at != std::string_view::npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (from_end) {
    parts = {"", "", text};
  } else {
    parts = {text, "", ""};
  }
  return make_sequence(std::move(parts), Sequence::Kind::tuple);
}

Value dict_get(Runtime& runtime, const Mapping& dict, const Arguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"});
  runtime.spend(dict.entries.size() / 8);
  require_hashable(bound.value(0));
  const Value* found = dict.find(bound.value(0));
  return found != nullptr ? *found : bound.value(1, None{});
}

template <Sequence::Kind kind>
Value view(Runtime& runtime, const Mapping& dict, const Arguments& arguments) {
  const Bound none("method", arguments, {});
  runtime.spend_items(dict.entries.size() * (kind == Sequence::Kind::items ? 3 : 1));
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    items.push_back(kind == Sequence::Kind::keys ? key
                    : kind == Sequence::Kind::values
                        ? value
                        : make_sequence({key, value}, Sequence::Kind::tuple));
  }
  return make_sequence(std::move(items), kind);
}

Value dict_copy(Runtime& runtime, const Mapping& dict, const Arguments& arguments) {
  const Bound none("copy", arguments, {});
  runtime.spend_items(dict.entries.size() * 2);
  return make_mapping(dict.entries);
}

constexpr Named<TextMethod> kTextMethods[] = {
    {"strip", stripped<Ends::both>},
    {"lstrip", stripped<Ends::left>},
    {"rstrip", stripped<Ends::right>},
    {"split", split_method<split>},
    {"rsplit", split_method<rsplit>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"endswith", has_affix<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace_method},
    {"upper", cased<to_upper>},
    {"lower", cased<to_lower>},
    {"title", cased<title_case>},
    {"capitalize", cased<capitalize>},
    {"swapcase", cased<swap_case>},
    {"casefold", cased<to_lower>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"join", join},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"isdigit", is_all_of<Class::digit>},
    {"isalpha", is_all_of<Class::alpha>},
    {"isalnum", is_all_of<Class::alnum>},
    {"isdecimal", is_all_of<Class::digit>},
    {"isnumeric", is_all_of<Class::numeric>},
    {"isspace", is_all_of<Class::space>},
    {"isupper", is_all_of<Class::upper>},
    {"islower", is_all_of<Class::lower>},
};

constexpr Named<DictMethod> kDictMethods[] = {
    {"get", dict_get},
    {"items", view<Sequence::Kind::items>},
    {"keys", view<Sequence::Kind::keys>},
    {"values", view<Sequence::Kind::values>},
    {"copy", dict_copy},
};

Value no_attribute(const Value& object, std::string_view name) {
  constexpr std::array<std::string_view, 9> kChanging{
      "append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "sort"};
  const bool changes = std::find(kChanging.begin(), kChanging.end(), name) != kChanging.end();
  return Value::undefined(changes
                              ? fmt::format("'{}' would change a {}, which templates cannot do",
                                            name, type_name(object))
                              : fmt::format("a {} has no attribute '{}'", type_name(object), name));
}

Value index_method(const Value& list, bool counts) {
  return make_callable(
      counts ? "count" : "index", [list, counts](Runtime& runtime, const Arguments& arguments) {
        const Bound bound(counts ? "count" : "index", arguments, {"value"});
        const std::vector<Value>& items = list.sequence()->items;
        runtime.spend(extent_of(list).weight);
        const auto same = [&](const Value& item) { return equals(item, bound.value(0)); };
        if (counts) {
          return Value(std::count_if(items.begin(), items.end(), same));
        }
        const auto found = std::find_if(items.begin(), items.end(), same);
        require(found != items.end(), "index: the value is not in the list");
        return Value(found - items.begin());
      });
}

/// loop.changed: whether its arguments differ from those of the previous call.
bool has_changed(Runtime& runtime, LoopRun& run, const Arguments& arguments) {
  Value value = make_sequence(arguments.positional, Sequence::Kind::tuple);
  const Extent extent = extent_of(value);
  require(!extent.has_space && !extent.has_object, "changed: only data can be compared");
  runtime.spend(extent.weight);
  if (run.changed && equals(*run.changed, value)) {
    return false;
  }
  run.changed = std::move(value);
  return true;
}

}  // namespace

Value find_method(const Value& object, std::string_view name) {
  if (object.text() != nullptr) {
    const TextMethod other = find_layout_method(name);
    if (const TextMethod method = other != nullptr ? other : find_in(kTextMethods, name)) {
      return make_callable(std::string(name),
                           [object, method](Runtime& runtime, const Arguments& arguments) {
                             return method(runtime, *object.text(), arguments);
                           });
    }
  }
  if (object.mapping() != nullptr) {
    if (const DictMethod method = find_in(kDictMethods, name)) {
      return make_callable(std::string(name),
                           [object, method](Runtime& runtime, const Arguments& arguments) {
                             return method(runtime, *object.mapping(), arguments);
                           });
    }
  }
  const Sequence* sequence = object.sequence();
  if (sequence != nullptr && sequence->kind == Sequence::Kind::list && name == "copy") {
    return make_callable("copy", [object](Runtime&, const Arguments&) { return object; });
  }
  if (object.real() != nullptr && name == "is_integer") {
    return make_callable("is_integer", [object](Runtime&, const Arguments&) {
      return Value(*object.real() == std::floor(*object.real()));
    });
  }
  if (sequence != nullptr && sequence->indexable() && (name == "index" || name == "count")) {
    return index_method(object, name == "count");
  }
  if (object.loop() != nullptr && name == "changed") {
    return make_callable("changed", [object](Runtime& runtime, const Arguments& arguments) {
      return has_changed(runtime, *object.loop()->run, arguments);
    });
  }
  if (object.loop() != nullptr && name == "cycle") {
    return make_callable("cycle", [object](Runtime&, const Arguments& arguments) {
      require(!arguments.positional.empty(), "cycle: no items for cycling given");
      return arguments.positional[object.loop()->index % arguments.positional.size()];
    });
  }
  return no_attribute(object, name);
}

}  // namespace winnow::jinja
