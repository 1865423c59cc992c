// Output of the subcommands, and formats of numbers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/readable.h"  // readable_bytes(), readable_count()

namespace winnow::cli {

/// Writes to standard output; Error on failure.
void print(std::string_view text);
/// The same, and flushes.
void print_now(std::string_view text);
/// Writes to standard error, on a line of its own where both outputs go to one terminal or file. A
/// closed standard error is not an error.
void print_note(std::string_view text);
void print_json(const nlohmann::ordered_json& value);

/// "1234567" -> "1,234,567"
std::string grouped(long long number);

std::string read_standard_input();
/// A whole file; "-" is standard input.
std::string read_file(const std::filesystem::path& path);
/// Throws Error that begins with `name` unless the text is UTF-8.
void require_utf8(const std::string& name, std::string_view text);
/// The file of `flag`, as read_file(), which must be UTF-8.
std::string read_utf8(const std::string& flag, const std::string& file);
/// The file of --text, without a last character that was cut. Throws Error if it is no UTF-8
/// (compressed, for instance), or lines of JSON, whose syntax would be read too.
std::string read_text(const std::string& file);

bool output_is_terminal();
bool input_is_terminal();

}  // namespace winnow::cli
