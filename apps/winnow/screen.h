// What the terminal can show.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow::cli {

/// Whether the terminal takes no escape sequences: TERM is dumb, or not set.
bool terminal_is_dumb();

/// Whether standard output is a terminal that takes them.
bool output_takes_escapes();

/// Whether nothing but ASCII can be shown: TERM is dumb, or the locale is C or POSIX.
bool shows_only_ascii();

/// Columns of the terminal at a file descriptor; 0: it is none.
int columns_of(int file);

/// Between the parts of a line: " · ", or what ASCII has for it.
std::string_view part_separator();

/// The parts in one line, without those at the end that `columns` have no room for.
std::string fitting_parts(std::span<const std::string> parts, int columns);

/// All parts, in as many lines as they need; without `columns` (0) in one.
std::string wrapped_parts(std::span<const std::string> parts, int columns);

}  // namespace winnow::cli
