// White space and word characters at the ends of a text.
#pragma once

#include <cstddef>
#include <string_view>

namespace winnow {

/// Unicode's White_Space.
bool is_space(char32_t code);

/// The characters at which Punctuation and BertPreTokenizer split: ASCII's, including symbols, and
/// Unicode's category P.
bool is_punctuation(char32_t code);

/// The name of the character's script as pre-tokenizers see it: Japanese scripts count as Han.
/// Empty for a space and for code points without a script.
std::string_view script_of(char32_t code);

/// The number of bytes of white space at the beginning or end of `text` (valid UTF-8).
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// Whether the first or the last character is part of a word: a letter, mark, decimal digit,
/// connector or joiner (\w in Unicode's UTS #18).
bool begins_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

}  // namespace winnow
