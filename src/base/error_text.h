// What to tell the user of an exception of any type.
#pragma once

#include <exception>
#include <string>

namespace winnow {

/// Its text, or that memory is short.
std::string error_text(const std::exception& error);

}  // namespace winnow
