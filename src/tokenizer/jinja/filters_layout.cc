// Filters that format text.
#include <algorithm>
#include <array>
#include <cmath>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/filter_tables.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

Value format_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  require(arguments.positional.empty() || arguments.named.empty(),
          "format: arguments with names and without do not go together");
  Value values = make_sequence(arguments.positional, Sequence::Kind::tuple);
  if (!arguments.named.empty()) {
    Mapping::Entries entries;
    for (const auto& [name, value] : arguments.named) {
      entries.emplace_back(name, value);
    }
    values = make_mapping(std::move(entries));
  }
  return format_percent(runtime, to_text(runtime, input), values);
}

/// Keeps as many whole words as fit, or, with `killwords`, cuts within a word.
Value truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::int64_t length = bound.integer(0, 255);
  const std::string end(bound.text(2).value_or("..."));
  const auto end_length = static_cast<std::int64_t>(count_characters(end));
  const std::int64_t leeway = bound.integer(3, 5);
  require(length >= end_length, "truncate: expected a length of at least {}, got {}", end_length,
          length);
  require(leeway >= 0, "truncate: expected a leeway of at least 0, got {}", leeway);
  const Value size = find_filter("length")(runtime, input, {});
  if (*size.integer() - leeway <= length) {  // even if it is negative
    return input;
  }
  require(input.text() != nullptr, "truncate: the input is a {}, expected a str", type_name(input));
  const std::string& text = *input.text();
  runtime.spend_text(text.size());
  std::string cut =
      text.substr(0, bytes_of_characters(text, static_cast<std::size_t>(length - end_length)));
  if (!bound.boolean(1, false)) {
    cut = cut.substr(0, cut.rfind(' '));
  }
  return cut + end;
}

bool is_word(std::string_view character) {
  return character == "_" || is_all(character, Class::alnum) || is_all(character, Class::numeric);
}

Value wordcount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("wordcount", arguments, {});
  const std::string text = to_text(runtime, input);
  runtime.spend_text(text.size() * 4);
  std::int64_t words = 0;
  bool inside = false;
  for (const std::string_view character : characters(text)) {
    const bool word = is_word(character);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return words;
}

Value center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  const Value text = to_text(runtime, input);
  const Value method = find_method(text, "center");
  return method.callable()->function(runtime, {{Value(bound.integer(0, 80))}, {}});
}

Value filesizeformat(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("filesizeformat", arguments, {"binary"});
  const bool binary = bound.boolean(0, false);
  const Value number = find_filter("float")(runtime, input, {{None{}}, {}});
  require(number.real() != nullptr, "filesizeformat: a {} is no number", type_name(input));
  const double bytes = *number.real();
  const double base = binary ? 1024 : 1000;
  if (bytes == 1.0) {
    return "1 Byte";
  }
  if (!(bytes >= base)) {
    return fmt::format("{} Bytes", static_cast<std::int64_t>(bytes));
  }
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  for (; i + 1 < kPrefixes.size() && bytes >= unit; ++i) {
    unit *= base;
  }
  const char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
  return fmt::format("{:.1f} {}{}B", base * bytes / unit, prefix, binary ? "i" : "");
}

/// A value whose dicts have sorted keys, as in pprint.
Value with_sorted_keys(Runtime& runtime, const Value& value) {
  if (const Mapping* mapping = value.mapping()) {
    runtime.spend_items(mapping->entries.size() * 2);
    Mapping::Entries entries = mapping->entries;
    for (auto& entry : entries) {
      entry.second = with_sorted_keys(runtime, entry.second);
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return less(a.first, b.first); });
    return make_mapping(std::move(entries));
  }
  const Sequence* sequence = value.sequence();
  if (sequence == nullptr || !sequence->indexable()) {
    return value;
  }
  std::vector<Value> items;
  runtime.spend_items(sequence->items.size());
  for (const Value& item : sequence->items) {
    items.push_back(with_sorted_keys(runtime, item));
  }
  return make_sequence(std::move(items), sequence->kind);
}

Value pprint(Runtime& runtime, const Value& input, const Arguments& arguments) {
  constexpr std::size_t kWidth = 80;
  const Bound none("pprint", arguments, {});
  std::string text = repr(runtime, with_sorted_keys(runtime, input));
  require(count_characters(text) <= kWidth,
          "pprint: a value of more than {} characters is not supported", kWidth);
  return text;
}

constexpr std::array<NamedFilter, 6> kLayoutFilters{{{"format", format_filter},
                                                     {"truncate", truncate},
                                                     {"wordcount", wordcount},
                                                     {"center", center},
                                                     {"filesizeformat", filesizeformat},
                                                     {"pprint", pprint}}};

}  // namespace

std::span<const NamedFilter> layout_filters() {
  return kLayoutFilters;
}

}  // namespace winnow::jinja
