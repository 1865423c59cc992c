// Formats numbers for people.
#pragma once

#include <string>

namespace winnow {

/// "1.50 MiB"
std::string readable_bytes(double bytes);
/// "134.5M", "68.5B"
std::string readable_count(double count);

}  // namespace winnow
