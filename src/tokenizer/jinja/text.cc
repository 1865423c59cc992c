#include "tokenizer/jinja/text.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace winnow::jinja {
namespace {

/// The last character of `text`, which must not be empty.
std::string_view last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) {
    --at;
  }
  return text.substr(at);
}

bool begins_with_space(std::string_view text) {
  return is_space(utf8_step(text).code);
}

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

/// The number of bytes at the beginning of `text` that are, or are not, white space.
std::size_t run_of(std::string_view text, bool space) {
  std::size_t at = 0;
  while (at < text.size() && begins_with_space(text.substr(at)) == space) {
    at += utf8_length(text[at]);
  }
  return at;
}

std::size_t run_at_end(std::string_view text, bool space) {
  const std::size_t size = text.size();
  while (!text.empty() && begins_with_space(last_character(text)) == space) {
    text.remove_suffix(last_character(text).size());
  }
  return size - text.size();
}

std::vector<std::string_view> split_spaces(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> parts;
  text.remove_prefix(run_of(text, true));
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.push_back(text);
      return parts;
    }
    const std::size_t length = run_of(text, false);
    parts.push_back(text.substr(0, length));
    text.remove_prefix(length);
    text.remove_prefix(run_of(text, true));
  }
  return parts;
}

std::vector<std::string_view> rsplit_spaces(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> parts;
  text.remove_suffix(run_at_end(text, true));
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    const std::size_t length = run_at_end(text, false);
    parts.push_back(text.substr(text.size() - length));
    text.remove_suffix(length);
    text.remove_suffix(run_at_end(text, true));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::size_t bytes_of_characters(std::string_view text, std::size_t count) {
  std::size_t bytes = 0;
  for (; count > 0 && bytes < text.size(); --count) {
    bytes += utf8_length(text[bytes]);
  }
  return bytes;
}

std::string ascii(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const auto code = static_cast<unsigned>(step.code);
    out += code < 0x80      ? std::string(text.substr(0, 1))
           : code < 0x100   ? fmt::format("\\x{:02x}", code)
           : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
    text.remove_prefix(step.length);
  }
  return out;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  all.reserve(count_characters(text));
  while (!text.empty()) {
    const std::size_t length = utf8_length(text.front());
    all.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return all;
}

bool is_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view strip(std::string_view text, Ends ends, std::optional<std::string_view> chars) {
  std::vector<std::string_view> set;
  if (chars) {
    set = characters(*chars);
  }
  const auto goes = [&](std::string_view character) {
    return chars ? std::find(set.begin(), set.end(), character) != set.end()
                 : begins_with_space(character);
  };
  const auto has = [&](Ends end) {
    return (static_cast<unsigned>(ends) & static_cast<unsigned>(end)) != 0;
  };
  while (has(Ends::left) && !text.empty() && goes(text.substr(0, utf8_length(text.front())))) {
    text.remove_prefix(utf8_length(text.front()));
  }
  while (has(Ends::right) && !text.empty() && goes(last_character(text))) {
    text.remove_suffix(last_character(text).size());
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, std::int64_t limit) {
  if (!separator) {
    return split_spaces(text, limit);
  }
  require(!separator->empty(), "split: the separator is empty");
  std::vector<std::string_view> parts;
  while (limit-- != 0) {
    const std::size_t at = text.find(*separator);
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator->size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text,
                                     std::optional<std::string_view> separator,
                                     std::int64_t limit) {
  if (!separator) {
    return rsplit_spaces(text, limit);
  }
  require(!separator->empty(), "rsplit: the separator is empty");
  std::vector<std::string_view> parts;
  while (limit-- != 0) {
    const std::size_t at = text.rfind(*separator);
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(text.substr(at + separator->size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    std::size_t end = 0;
    while (end < text.size() && !is_line_end(utf8_step(text.substr(end)).code)) {
      end += utf8_length(text[end]);
    }
    std::size_t next = end;
    if (end < text.size()) {
      next += text.substr(end).starts_with("\r\n") ? 2 : utf8_length(text[end]);
    }
    lines.push_back(text.substr(0, keep_ends ? next : end));
    text.remove_prefix(next);
  }
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t limit) {
  std::string out;
  std::size_t at = 0;
  while (limit-- != 0) {
    const std::size_t found = text.find(old, at);
    if (found == std::string_view::npos) {
      break;
    }
    out.append(text, at, found - at);
    out += with;
    at = found + old.size();
    if (old.empty()) {  // between all characters, as in Python
      if (at == text.size()) {
        return out;
      }
      const std::size_t length = utf8_length(text[at]);
      out.append(text, at, length);
      at += length;
    }
  }
  out.append(text, at, std::string_view::npos);
  return out;
}

}  // namespace winnow::jinja
