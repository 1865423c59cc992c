// Man pages (roff).
#pragma once

#include <string>

#include "apps/winnow/manual/command_page.h"

namespace winnow::cli {

std::string man_page(const CommandPage& command);

}  // namespace winnow::cli
