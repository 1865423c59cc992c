// Names that a user may have misspelt.
#pragma once

#include <string_view>

namespace winnow {

/// Whether one insertion, removal, change or exchange of neighbours makes `b` of `a`.
bool is_one_slip_away(std::string_view a, std::string_view b);

}  // namespace winnow
