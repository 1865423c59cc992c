// A text for those who have none at hand.
#pragma once

#include <string_view>

namespace winnow::eval {

/// winnow's own manual, under winnow's licence.
std::string_view manual_text();

}  // namespace winnow::eval
