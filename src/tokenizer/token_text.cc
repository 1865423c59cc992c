#include "tokenizer/token_text.h"

#include <charconv>

#include "checkpoint/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/component_depth.h"

namespace winnow {

int byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) {
    return -1;
  }
  int byte = -1;
  const char* end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, byte, 16);
  return error == std::errc() && stop == end && byte >= 0 ? byte : -1;
}

TokenText::TokenText(const JsonField& field) {
  if (field.is_null()) {
    field.unsupported("a tokenizer without a decoder");
  }
  add(field, 0);
  if (byte_level_ && (byte_fallback_ || fused_ || !replacements_.empty())) {
    field.unsupported("ByteLevel together with other decoders");
  }
}

void TokenText::add(const JsonField& field, int depth) {
  check_depth(field, depth);
  const std::string& type = field.type();
  if (type == "Sequence") {
    for (const JsonField& step : field["decoders"].elements()) {
      add(step, depth + 1);
    }
  } else if (type == "ByteLevel") {
    byte_level_ = true;
  } else if (type == "ByteFallback" && !fused_) {
    byte_fallback_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "Strip" && fused_) {
    add_strip(field);
  } else if (type == "Replace" && !fused_ && !byte_fallback_) {
    replacements_.emplace_back(field, growth_);
  } else {
    field.unsupported(fmt::format("decoder {} in this place", in_quotes(type)));
  }
}

void TokenText::add_strip(const JsonField& field) {
  const nlohmann::json start = field["start"].json();
  if (field["content"].as_string() != " " || (start != 0 && start != 1) ||
      field["stop"].json() != 0) {
    field.unsupported("a Strip of anything but the first space");
  }
  drop_first_space_ = start == 1;
}

std::string TokenText::bytes_of(std::string_view token) const {
  if (byte_level_) {
    return from_byte_alphabet(token).value_or(std::string(token));
  }
  if (const int byte = byte_fallback_ ? byte_token(token) : -1; byte >= 0) {
    return std::string(1, static_cast<char>(byte));
  }
  std::string text(token);
  for (const Replacement& replacement : replacements_) {
    text = replacement.apply(text);
  }
  return text;
}

}  // namespace winnow
