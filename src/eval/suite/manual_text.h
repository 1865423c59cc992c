// A built-in text, used when the user has none.
#pragma once

#include <string_view>

namespace winnow::eval {

/// winnow's own manual, under winnow's licence.
std::string_view manual_text();

}  // namespace winnow::eval
