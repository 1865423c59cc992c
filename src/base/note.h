// Notes to the user that are not errors.
#pragma once

#include <string_view>

namespace winnow {

/// Writes "winnow: LINE" to standard error. For costs and decisions that a user would ask about.
/// To be used at most once per loaded object.
void note(std::string_view line);

}  // namespace winnow
