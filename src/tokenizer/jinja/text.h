// Python's string functions on well-formed UTF-8; positions count code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::jinja {

std::size_t count_characters(std::string_view text);
/// The bytes of the first `count` characters, or of all if there are fewer.
std::size_t bytes_of_characters(std::string_view text, std::size_t count);
/// One string per code point.
std::vector<std::string_view> characters(std::string_view text);

/// str.isspace() for one code point.
bool is_space(char32_t code);
/// The ends that strip() works on.
enum class Ends : std::uint8_t { left = 1, right = 2, both = 3 };
/// Without `chars`, strips white space.
std::string_view strip(std::string_view text, Ends ends,
                       std::optional<std::string_view> chars = std::nullopt);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// First letter in upper case, the rest in lower case.
std::string capitalize(std::string_view text);
/// str.title(): letters after a non-letter in upper case, others in lower case.
std::string title_case(std::string_view text);
/// Jinja's `title`: the same, but words begin only after white space and -({[<.
std::string title_words(std::string_view text);

/// Swaps upper and lower case.
std::string swap_case(std::string_view text);
/// Escapes all non-ASCII characters as Python does (\\xe9, \\u4e16).
std::string ascii(std::string_view text);

/// str.isupper() and the like: at least one character, and all relevant ones are of the class.
enum class Class : std::uint8_t { upper, lower, digit, numeric, alpha, alnum, space };
bool is_all(std::string_view text, Class wanted);

/// str.split: at most `limit` splits unless it is negative. Without a separator, at white space,
/// without empty parts.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, std::int64_t limit);
std::vector<std::string_view> rsplit(std::string_view text,
                                     std::optional<std::string_view> separator, std::int64_t limit);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

/// At most `limit` replacements unless it is negative.
std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t limit);

}  // namespace winnow::jinja
