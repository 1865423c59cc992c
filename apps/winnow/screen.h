// Capabilities of the terminal.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow::cli {

/// Whether the terminal supports no escape sequences: TERM is dumb, or not set.
bool terminal_is_dumb();

/// Whether standard output is a terminal that supports them.
bool output_takes_escapes();

/// Whether only ASCII can be shown: TERM is dumb, or the locale is C or POSIX.
bool shows_only_ascii();

/// Columns of the terminal at a file descriptor; 0: it is not a terminal.
int columns_of(int file);

/// The separator between parts of a line: " · ", or an ASCII one.
std::string_view part_separator();

/// The parts in one line, without the last ones that do not fit in `columns`.
std::string fitting_parts(std::span<const std::string> parts, int columns);

/// All parts, in as many lines as needed; with `columns` 0 in one line.
std::string wrapped_parts(std::span<const std::string> parts, int columns);

}  // namespace winnow::cli
