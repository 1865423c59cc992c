// Numbers as people read them.
#pragma once

#include <string>

namespace winnow {

/// "1.50 MiB"
std::string readable_bytes(double bytes);

}  // namespace winnow
