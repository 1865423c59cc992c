// Notes to the user that are not errors.
#pragma once

#include <string_view>

namespace winnow {

/// Writes "winnow: LINE" to standard error. For costs and decisions that a user would ask about.
/// To be used at most once per loaded object.
void note(std::string_view line);

/// Tells what was written to standard output.
void wrote_to_output(std::string_view text);
/// Ends a line that standard output left open, if standard error goes to the same terminal or file:
/// what is written there next begins a line. note() does so, too.
void end_open_line();

}  // namespace winnow
