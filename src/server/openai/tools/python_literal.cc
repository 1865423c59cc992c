#include "server/openai/tools/python_literal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "checkpoint/json_text.h"
#include "tokenizer/utf8.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 64;

Match literal(std::string_view text, std::size_t& at, Json& value, int depth);

// The character with the code in `digits` hexadecimal digits.
Match code_point(std::string_view text, std::size_t& at, std::size_t digits, std::string& out) {
  if (text.size() - at < digits) {
    return Match::beginning;
  }
  std::uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(text.data() + at, text.data() + at + digits, code, /*base=*/16);
  constexpr std::uint32_t kFirstSurrogate = 0xD800;
  constexpr std::uint32_t kLastSurrogate = 0xDFFF;
  constexpr std::uint32_t kMost = 0x10FFFF;
  if (error != std::errc{} || end != text.data() + at + digits || code > kMost ||
      (code >= kFirstSurrogate && code <= kLastSurrogate)) {
    return Match::other;
  }
  append_utf8(code, out);
  at += digits;
  return Match::whole;
}

// The escape sequence after a backslash.
Match escape(std::string_view text, std::size_t& at, std::string& out) {
  constexpr std::array<std::pair<char, char>, 6> kControls{
      {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'b', '\b'}, {'f', '\f'}, {'\n', '\0'}}};
  const char c = text[at++];
  const auto* const control = std::ranges::find(kControls, c, &std::pair<char, char>::first);
  if (control != kControls.end()) {
    out += control->second == '\0' ? "" : std::string(1, control->second);
    return Match::whole;
  }
  switch (c) {
    case 'x':
      return code_point(text, at, 2, out);
    case 'u':
      return code_point(text, at, 4, out);
    case 'U':
      return code_point(text, at, 8, out);
    case '\\':
    case '\'':
    case '"':
    case '/':  // JSON's
      out += c;
      return Match::whole;
    default:  // Python keeps a backslash that escapes nothing
      out += '\\';
      out += c;
      return Match::whole;
  }
}

Match string_literal(std::string_view text, std::size_t& at, std::string& out) {
  const char quote = text[at++];
  while (at < text.size()) {
    const char c = text[at++];
    if (c == quote) {
      return Match::whole;
    }
    if (c != '\\') {
      out += c;
    } else if (at == text.size()) {
      return Match::beginning;
    } else if (const Match found = escape(text, at, out); found != Match::whole) {
      return found;
    }
  }
  return Match::beginning;
}

// Numbers and names: reads all characters that may be part of one.
Match word_literal(std::string_view text, std::size_t& at, Json& value) {
  const std::size_t end = std::min(text.find_first_of(" \t\r\n,)]}:=", at), text.size());
  const std::string_view word = text.substr(at, end - at);
  if (end == text.size()) {
    constexpr std::size_t kLongest = 400;
    return word.size() < kLongest ? Match::beginning : Match::other;
  }
  at = end;
  if (word == "True" || word == "False") {
    value = word == "True";
    return Match::whole;
  }
  if (word == "None") {
    value = nullptr;
    return Match::whole;
  }
  value = json_or_discarded<Json>(word);
  return value.is_discarded() ? Match::other : Match::whole;
}

// Reads up to `close`: values, or keys and values.
Match container(std::string_view text, std::size_t& at, char close, Json& value, int depth) {
  value = close == '}' ? Json::object() : Json::array();
  ++at;
  while (true) {
    skip_blanks(text, at);
    if (at == text.size()) {
      return Match::beginning;
    }
    if (text[at] == close) {
      ++at;
      return Match::whole;
    }
    Json item;
    Match found = literal(text, at, item, depth);
    if (found == Match::whole && close == '}') {
      const std::string key = item.is_string() ? item.get<std::string>() : json_text(item);
      found = match(text, at, ":");
      if (found == Match::whole) {
        found = literal(text, at, value[key], depth);
      }
    } else if (found == Match::whole) {
      value.push_back(std::move(item));
    }
    if (found != Match::whole) {
      return found;
    }
    skip_blanks(text, at);
    if (at < text.size() && text[at] != close && text[at] != ',') {
      return Match::other;
    }
    at += at < text.size() && text[at] == ',' ? 1 : 0;
  }
}

Match literal(std::string_view text, std::size_t& at, Json& value, int depth) {
  skip_blanks(text, at);
  if (at == text.size()) {
    return Match::beginning;
  }
  if (depth == kMostDepth) {
    return Match::other;
  }
  switch (text[at]) {
    case '\'':
    case '"': {
      std::string string;
      const Match found = string_literal(text, at, string);
      value = std::move(string);
      return found;
    }
    case '[':
      return container(text, at, ']', value, depth + 1);
    case '(':
      return container(text, at, ')', value, depth + 1);
    case '{':
      return container(text, at, '}', value, depth + 1);
    default:
      return word_literal(text, at, value);
  }
}

}  // namespace

Match python_literal(std::string_view text, std::size_t& at, Json& value) {
  return literal(text, at, value, 0);
}

}  // namespace winnow::server
