// Detects misspelt names.
#pragma once

#include <string_view>

namespace winnow {

/// Whether one insertion, removal, change or swap of neighbours turns `a` into `b`.
bool is_one_slip_away(std::string_view a, std::string_view b);

}  // namespace winnow
