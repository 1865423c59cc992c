// Differences between the libraries' Unicode versions: Hugging Face's tokenizers use an Oniguruma
// with 16; PCRE2 (10.42) and our Oniguruma (6.9.8) have 14; Hugging Face's normalizer
// has 9.
#pragma once

#include <string_view>

namespace winnow {

/// Code points that Unicode 15, 15.1 and 16 added to the general category `category`, as ranges for
/// a character class; "" for categories without a table.
std::string_view newer_members(std::string_view category);

/// Whether `code` has a combining class or takes part in a composition, but only since Unicode 10
/// or later. Models were trained on text in which such characters were left unchanged.
bool combines_since_unicode_10(char32_t code);
/// The same for marks, and for characters with a compatibility decomposition.
bool is_mark_since_unicode_10(char32_t code);
bool is_compatible_since_unicode_10(char32_t code);

}  // namespace winnow
