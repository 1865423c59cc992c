// Answers without what only their spelling tells apart.
#pragma once

#include <string>
#include <string_view>

namespace winnow::answers {

/// Without spaces, dollars, \left and \right, \dfrac for \frac, \text{} and units, degrees, "x ="
/// in front and dots at the end.
std::string plain_spelling(std::string_view text);

/// "1,234,567" -> "1234567", where the commas separate thousands.
std::string without_thousands(std::string_view text);

}  // namespace winnow::answers
