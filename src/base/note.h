// What the user should know and is no error.
#pragma once

#include <string_view>

namespace winnow {

/// Writes "winnow: LINE" to standard error. For costs and decisions that a user would ask about, at
/// most once for each thing that is loaded.
void note(std::string_view line);

}  // namespace winnow
