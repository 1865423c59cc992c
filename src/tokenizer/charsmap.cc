#include "tokenizer/charsmap.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

std::string from_base64(const JsonField& field) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string_view text = field.as_string();
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    require(digit != std::string_view::npos, "{}: expected base64", field.where());
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFFU);
    }
  }
  return out;
}

// The grapheme at the beginning of `text`.
std::string_view first_grapheme(std::string_view text) {
  utf8proc_int32_t state = 0;
  Utf8Step before = utf8_step(text);
  std::size_t length = before.length;
  while (length < text.size()) {
    const Utf8Step next = utf8_step(text.substr(length));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    length += next.length;
    before = next;
  }
  return text.substr(0, length);
}

}  // namespace

Charsmap::Charsmap(const JsonField& field)
    : bytes_(std::make_shared<const std::string>(from_base64(field))) {
  check_charsmap(*bytes_, field.where());
  if (bytes_->empty()) {
    return;
  }
  std::uint32_t trie_bytes = 0;
  std::memcpy(&trie_bytes, bytes_->data(), sizeof trie_bytes);  // little-endian, like this machine
  trie_ = std::string_view(*bytes_).substr(4, trie_bytes);
  strings_ = std::string_view(*bytes_).substr(4 + trie_bytes);
  for (std::string_view rest = strings_; !rest.empty();) {
    const std::size_t length = rest.find('\0');
    growth_ = std::max(growth_, static_cast<double>(length));
    rest.remove_prefix(length + 1);
  }
}

std::uint32_t Charsmap::unit(std::size_t i) const {
  std::uint32_t value = 0;
  std::memcpy(&value, trie_.data() + i * sizeof value, sizeof value);
  return value;
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); };
  if (trie_.empty()) {
    return std::nullopt;
  }
  std::size_t node = offset(unit(0));
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) {
      break;
    }
    node ^= byte;
    const std::uint32_t found = unit(node);
    if ((found & 0x800000FFU) != byte) {
      break;
    }
    node ^= offset(found);
    if ((found & 0x100U) != 0) {
      const std::string_view rest = strings_.substr(unit(node) & 0x7FFFFFFFU);
      return rest.substr(0, rest.find('\0'));
    }
  }
  return std::nullopt;
}

std::string Charsmap::apply(std::string_view text) const {
  constexpr std::size_t kLongestLookedUp = 5;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::string_view grapheme = first_grapheme(text);
    text.remove_prefix(grapheme.size());
    if (grapheme.size() <= kLongestLookedUp) {
      if (const auto whole = find(grapheme)) {
        out += *whole;
        continue;
      }
    }
    while (!grapheme.empty()) {
      const std::string_view character = grapheme.substr(0, utf8_length(grapheme[0]));
      out += find(character).value_or(character);
      grapheme.remove_prefix(character.size());
    }
  }
  return out;
}

}  // namespace winnow
