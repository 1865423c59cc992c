// Reduces answers to a common spelling.
#pragma once

#include <string>
#include <string_view>

namespace winnow::answers {

/// Removes spaces, dollars, \left and \right, \text{} and units, degrees, "x =" at the beginning
/// and dots at the end; replaces \dfrac by \frac.
std::string plain_spelling(std::string_view text);

/// "1,234,567" -> "1234567", where the commas separate thousands.
std::string without_thousands(std::string_view text);

}  // namespace winnow::answers
