// String methods for layout.
#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/format.h"
#include "tokenizer/jinja/method_tables.h"
#include "tokenizer/jinja/text.h"

namespace winnow::jinja {
namespace {

enum class Side : std::uint8_t { left, right, both };

/// The number of characters by which the text is shorter than the width.
std::size_t gap_of(Runtime& runtime, std::string_view text, std::int64_t width) {
  const std::size_t size = count_characters(text);
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(width, 0));
  const std::size_t gap = wanted > size ? wanted - size : 0;
  runtime.spend_text(gap);
  runtime.spend_text(text.size());
  return gap;
}

std::string repeated(Runtime& runtime, std::string_view text, std::size_t times) {
  runtime.spend_text(text.size() * times);
  std::string out;
  for (std::size_t i = 0; i < times; ++i) {
    out += text;
  }
  return out;
}

template <Side side>
Value justified(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width", "fillchar"});
  const std::string_view fill = bound.text(1).value_or(" ");
  require(count_characters(fill) == 1, "the fill character must be exactly one character long");
  const std::int64_t width = bound.integer(0, 0);
  const std::size_t gap = gap_of(runtime, text, width);
  // Python's center puts an odd padding character on the left of a text with an odd width.
  const std::size_t half = gap / 2 + (gap & static_cast<std::size_t>(width) & 1U);
  const std::size_t before = side == Side::right ? gap : side == Side::both ? half : 0;
  return repeated(runtime, fill, before).append(text) + repeated(runtime, fill, gap - before);
}

Value zfill(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("zfill", arguments, {"width"});
  const std::size_t gap = gap_of(runtime, text, bound.integer(0, 0));
  const std::size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return std::string(text.substr(0, sign)) + std::string(gap, '0').append(text.substr(sign));
}

Value expandtabs(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("expandtabs", arguments, {"tabsize"});
  const std::int64_t size = bound.integer(0, 8);
  require(size <= 1000, "expandtabs: {} is too wide", size);
  std::string out;
  std::int64_t column = 0;
  for (const std::string_view character : characters(text)) {
    if (character == "\t") {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<std::size_t>(spaces), ' ');
      runtime.spend_text(static_cast<std::size_t>(spaces));
      column += spaces;
    } else {
      out += character;
      column = character == "\n" || character == "\r" ? 0 : column + 1;
    }
  }
  runtime.spend_text(out.size());
  return out;
}

Value format_method(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  Mapping::Entries named;
  for (const auto& [name, value] : arguments.named) {
    named.emplace_back(name, value);
  }
  return format_fields(runtime, text, arguments.positional, make_mapping(std::move(named)));
}

Value format_map(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound bound("format_map", arguments, {"mapping"});
  require(bound.value(0).mapping() != nullptr, "format_map: a {} is no dict",
          type_name(bound.value(0)));
  return format_fields(runtime, text, {}, bound.value(0));
}

Value is_ascii_text(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound none("isascii", arguments, {});
  runtime.spend_text(text.size());
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

Value is_title(Runtime& runtime, std::string_view text, const Arguments& arguments) {
  const Bound none("istitle", arguments, {});
  runtime.spend_text(text.size() * 4);
  return title_case(text) == text && to_lower(text) != to_upper(text);
}

constexpr Named<TextMethod> kLayoutMethods[] = {
    {"center", justified<Side::both>},
    {"ljust", justified<Side::left>},
    {"rjust", justified<Side::right>},
    {"zfill", zfill},
    {"expandtabs", expandtabs},
    {"format", format_method},
    {"format_map", format_map},
    {"isascii", is_ascii_text},
    {"istitle", is_title},
};

}  // namespace

TextMethod find_layout_method(std::string_view name) {
  return find_in(kLayoutMethods, name);
}

}  // namespace winnow::jinja
