// Words of a text that comes in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow::server {

/// What a text may still become: a word where it stands, the beginning of it, or neither.
enum class Match : std::uint8_t { whole, beginning, other };

void skip_blanks(std::string_view text, std::size_t& at);

/// Compares what follows blanks with `word`, and goes behind it where it stands.
Match match(std::string_view text, std::size_t& at, std::string_view word);

/// Takes a word from the front, or finds that it is missing, which is as good. False: not yet.
bool take_word(std::string& text, std::string_view word);

/// Whether a name is one that a function may have.
bool is_function_name(std::string_view name);

}  // namespace winnow::server
