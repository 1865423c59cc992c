// Scores by two variables, as coloured cells on a terminal.
#pragma once

#include <string>
#include <vector>

namespace winnow::cli {

/// `scores` [rows][columns] are from 0 to 1, NaN if missing. `corner` names rows and
/// columns ("depth \\ tokens").
std::string score_map(const std::string& corner, const std::vector<std::string>& rows,
                      const std::vector<std::string>& columns,
                      const std::vector<std::vector<double>>& scores, bool colour);

}  // namespace winnow::cli
