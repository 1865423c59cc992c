// Formats numbers for people.
#pragma once

#include <string>

namespace winnow {

/// "1.50 MiB"
std::string readable_bytes(double bytes);
/// At most three digits, or all before the point: "0.000805", "12.5", "1,090"
std::string readable_number(double number);
/// "134.5M", "68.5B"
std::string readable_count(double count);

}  // namespace winnow
