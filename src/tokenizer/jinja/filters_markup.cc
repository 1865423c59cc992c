// Filters for HTML and URLs.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "tokenizer/jinja/arguments.h"
#include "tokenizer/jinja/filter_tables.h"
#include "tokenizer/jinja/operators.h"
#include "tokenizer/jinja/print.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

std::string escaped(Runtime& runtime, const Value& value) {
  return *find_filter("escape")(runtime, value, {}).text();
}

/// As urllib's quote; in a query, / is quoted too, and a space becomes +.
std::string url_quoted(Runtime& runtime, const Value& value, bool in_query) {
  std::string out;
  for (const char c : to_text(runtime, value)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !in_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  runtime.spend_text(out.size());
  return out;
}

Value urlencode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("urlencode", arguments, {});
  if (input.mapping() == nullptr && input.sequence() == nullptr) {
    return url_quoted(runtime, input, /*in_query=*/false);
  }
  std::string out;
  const auto add = [&](const Value& name, const Value& value) {
    out += out.empty() ? "" : "&";
    out += url_quoted(runtime, name, true) + "=" + url_quoted(runtime, value, true);
    runtime.spend_text(out.size() > Runtime::kMaxText ? out.size() : 0);
  };
  if (const Mapping* mapping = input.mapping()) {
    for (const auto& [name, value] : mapping->entries) {
      add(name, value);
    }
    return out;
  }
  for (const Value& pair : iterate(runtime, input)) {
    const std::vector<Value> both = iterate(runtime, pair);
    require(both.size() == 2, "urlencode: a query is made of pairs");
    add(both[0], both[1]);
  }
  return out;
}

Value xmlattr(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound bound("xmlattr", arguments, {"autospace"});
  require(input.mapping() != nullptr, "xmlattr: a {} is no dict", type_name(input));
  std::string out;
  for (const auto& [name, value] : input.mapping()->entries) {
    if (value.is_none() || value.is_undefined()) {
      continue;
    }
    const std::string key = to_text(runtime, name);
    require(key.find_first_of(" \t\n\r\f\v/>=") == std::string::npos,
            "xmlattr: '{}' is not the name of an attribute", key);
    out += out.empty() && !bound.boolean(0, true) ? "" : " ";
    out += escaped(runtime, name) + "=\"" + escaped(runtime, value) + "\"";
    runtime.spend_text(out.size() > Runtime::kMaxText ? out.size() : 0);
  }
  return out;
}

/// `text` without the parts between `begin` and `end`.
std::string without(Runtime& runtime, std::string_view text, std::string_view begin,
                    std::string_view end) {
  runtime.spend_search(text, begin);
  std::string out;
  for (;;) {
    const std::size_t from = text.find(begin);
    const std::size_t to =
        from == std::string_view::npos ? from : text.find(end, from + begin.size());
    if (to == std::string_view::npos) {
      return out.append(text);
    }
    out += text.substr(0, from);
    text.remove_prefix(to + end.size());
  }
}

/// The character for the entity "amp" or "#39"; empty for unknown names.
std::string entity(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kNames{
      {{"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}, {"nbsp", "\u00A0"}}};
  const auto* found =
      std::ranges::find_if(kNames, [&](const auto& entry) { return entry.first == name; });
  if (found != kNames.end()) {
    return std::string(found->second);
  }
  std::string out;
  if (name.starts_with('#')) {
    name.remove_prefix(1);
    const bool hex = name.starts_with('x') || name.starts_with('X');
    name.remove_prefix(hex ? 1 : 0);
    std::uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(name.data(), name.data() + name.size(), code, hex ? 16 : 10);
    if (error == std::errc() && end == name.data() + name.size() && code > 0x9F &&
        code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF)) {
      append_utf8(code, out);
    } else if (error == std::errc() && end == name.data() + name.size() && code >= 0x20 &&
               code < 0x7F) {
      out += static_cast<char>(code);
    }
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t at = std::min(text.find('&'), text.size());
    out += text.substr(0, at);
    text.remove_prefix(at);
    const std::size_t end = text.substr(0, 16).find(';');
    const std::string character =
        end == std::string_view::npos ? "" : entity(text.substr(1, end - 1));
    if (text.empty()) {
      break;
    }
    out += character.empty() ? "&" : character;
    text.remove_prefix(character.empty() ? 1 : end + 1);
  }
  return out;
}

/// Removes comments and tags, collapses white space, and replaces entities.
Value striptags(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("striptags", arguments, {});
  std::string text = to_text(runtime, input);
  text = without(runtime, text, "<!--", "-->");
  text = without(runtime, text, "<", ">");
  std::string out;
  for (const std::string_view word : split(text, std::nullopt, -1)) {
    out += out.empty() ? "" : " ";
    out += word;
  }
  runtime.spend_text(out.size());
  return unescaped(out);
}

Value forceescape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Bound none("forceescape", arguments, {});
  return escaped(runtime, input);
}

constexpr std::array<NamedFilter, 4> kMarkupFilters{{{"urlencode", urlencode},
                                                     {"xmlattr", xmlattr},
                                                     {"striptags", striptags},
                                                     {"forceescape", forceescape}}};

}  // namespace

std::span<const NamedFilter> markup_filters() {
  return kMarkupFilters;
}

}  // namespace winnow::jinja
