// Reads UTF-8 one character at a time, and reports malformed bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace winnow {

/// The first character of a byte string.
struct Utf8Step {
  enum class Kind : std::uint8_t {
    character,   // `length` bytes are one well-formed character
    invalid,     // `length` bytes can never become one (a "maximal subpart", Unicode 3.9, D93b)
    incomplete,  // all `length` remaining bytes are a prefix of a character
  };
  Kind kind = Kind::character;
  std::size_t length = 0;
  char32_t code = 0;  // of a character
};

/// U+FFFD, the replacement for bytes that are not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// Reads the beginning of `bytes`, which must not be empty.
Utf8Step utf8_step(std::string_view bytes);

/// The length of the character that begins with `lead`, in text known to be well formed.
constexpr std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

bool is_valid_utf8(std::string_view bytes);
bool is_ascii(std::string_view bytes);

/// `bytes` with every malformed maximal subpart replaced by U+FFFD, like Rust's
/// String::from_utf8_lossy and the WHATWG decoder.
std::string to_valid_utf8(std::string_view bytes);

/// Appends a code point (at most U+10FFFF) as UTF-8.
void append_utf8(char32_t code, std::string& out);

}  // namespace winnow
