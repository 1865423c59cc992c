// Filters that return strings.
#include <array>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/filter_tables.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

template <std::string (*function)(std::string_view)>
Value mapped(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("filter", arguments, {});
  return function(to_text(runtime, input));
}

Value trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  return strip(to_text(runtime, input), Ends::both, bound.text(0));
}

Value as_string(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("string", arguments, {});
  return to_text(runtime, input);
}

/// Printing escapes nothing, so marking a value as safe has no effect.
Value safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  return as_string(runtime, input, arguments);
}

std::string_view entity_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '\'':
      return "&#39;";
    case '"':
      return "&#34;";
    default:
      return {};
  }
}

Value escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("escape", arguments, {});
  std::string out;
  for (const char c : to_text(runtime, input)) {
    if (const std::string_view entity = entity_of(c); !entity.empty()) {
      out += entity;
    } else {
      out += c;
    }
  }
  runtime.spend_text(out.size());
  return out;
}

Value replace_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const std::string text = to_text(runtime, input);
  const std::string old = to_text(runtime, bound.value(0));
  const std::string with = to_text(runtime, bound.value(1));
  runtime.spend_search(text, old);
  runtime.spend_text(old.empty() ? (text.size() + 1) * (with.size() + 1)
                                 : text.size() + text.size() / old.size() * with.size());
  return replace(text, old, with, bound.integer(2, -1));
}

Value join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const std::string between = to_text(runtime, bound.value(0, ""));
  std::string out;
  bool first = true;
  for (const Value& item : iterate(runtime, input)) {
    if (!first) {
      out += between;
    }
    first = false;
    out += to_text(runtime, part_named(runtime, item, bound.value(1, None{})));
    runtime.spend_text(out.size() > Runtime::kMaxText ? out.size() : between.size());
  }
  return out;
}

Value indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  require_defined(input);
  require(input.text() != nullptr, "indent: the input is a {}, expected a str", type_name(input));
  const bool by_text = bound.has(0) && bound.value(0).text() != nullptr;
  const std::int64_t width = by_text ? 0 : bound.integer(0, 4);
  require(width <= 1'000'000, "indent: {} is too wide", width);
  const std::string margin =
      by_text ? std::string(bound.required_text(0))
              : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  const bool blank = bound.boolean(2, false);
  std::string text = *input.text();
  text += '\n';
  std::string out;
  if (bound.boolean(1, false)) {
    out = margin;
  }
  bool first = true;
  for (const std::string_view line : split_lines(text)) {
    if (!first) {
      out += '\n';
      out += blank || !line.empty() ? std::string_view(margin) : std::string_view();
    }
    out += line;
    runtime.spend_text(out.size() > Runtime::kMaxText ? out.size() : margin.size() + line.size());
    first = false;
  }
  return out;
}

JsonStyle json_style(const Bound& bound) {
  JsonStyle style;
  style.ascii = bound.boolean(0, false);
  style.sort_keys = bound.boolean(3, false);
  if (bound.has(1) && !bound.value(1).is_none()) {
    if (bound.value(1).text() != nullptr) {
      style.indent = *bound.value(1).text();
    } else {
      const std::int64_t width = bound.integer(1, 0);
      require(width <= 1000, "tojson: an indent of {} is too wide", width);
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.item_separator.assign(1, ',');  // GCC 12 warns of an = here
  }
  if (bound.has(2) && !bound.value(2).is_none()) {
    const Sequence* both = bound.value(2).sequence();
    require(both != nullptr && both->items.size() == 2 && both->items[0].text() != nullptr &&
                both->items[1].text() != nullptr,
            "tojson: the separators are two strings");
    style.item_separator = *both->items[0].text();
    style.key_separator = *both->items[1].text();
  }
  return style;
}

Value tojson(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return to_json(runtime, input, json_style(bound));
}

constexpr std::array<NamedFilter, 13> kTextFilters{{{"upper", mapped<to_upper>},
                                                    {"lower", mapped<to_lower>},
                                                    {"capitalize", mapped<capitalize>},
                                                    {"title", mapped<title_words>},
                                                    {"trim", trim},
                                                    {"string", as_string},
                                                    {"safe", safe},
                                                    {"escape", escape},
                                                    {"e", escape},
                                                    {"replace", replace_filter},
                                                    {"join", join},
                                                    {"indent", indent},
                                                    {"tojson", tojson}}};

}  // namespace

std::span<const NamedFilter> text_filters() {
  return kTextFilters;
}

}  // namespace winnow::jinja
