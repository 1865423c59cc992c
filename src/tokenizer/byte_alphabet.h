// GPT-2's alphabet of byte-level vocabularies: each byte is one printable character.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow {

/// Appends the character of every byte of `bytes`: printable Latin-1 unchanged, the others, in
/// order, from U+0100 on ("\n" is "Ċ", " " is "Ġ").
void append_in_byte_alphabet(std::string_view bytes, std::string& out);

/// The bytes that valid UTF-8 `text` encodes; nullopt when one of its characters is not in the
/// alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace winnow
