// GPT-2's alphabet of byte-level vocabularies: each byte stands as one printable character.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace winnow {

/// Appends every byte of `bytes` as its character: printable Latin-1 as itself, the others, in
/// order, from U+0100 on ("\n" is "Ċ", " " is "Ġ").
void append_in_byte_alphabet(std::string_view bytes, std::string& out);

/// The bytes that valid UTF-8 `text` stands for; nullopt when one of its characters is not of the
/// alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace winnow
