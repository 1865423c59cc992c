// Matches words in a text that arrives in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow::server {

/// Whether a text contains a word at some position, a prefix of it at the text's end, or neither.
enum class Match : std::uint8_t { whole, beginning, other };

void skip_blanks(std::string_view text, std::size_t& at);

/// Skips white space and compares with `word`; on a match, moves `at` past it.
Match match(std::string_view text, std::size_t& at, std::string_view word);

/// Removes a word from the front, if it is there. False: not enough text to know.
bool take_word(std::string& text, std::string_view word);

/// Whether a name is valid for a function.
bool is_function_name(std::string_view name);

}  // namespace winnow::server
