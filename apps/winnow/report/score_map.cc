#include "apps/winnow/report/score_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace winnow::cli {
namespace {

// Colours of a 256-colour terminal: red, orange, yellow, light green, green.
int score_colour(double score) {
  static constexpr std::array<int, 5> kScale{160, 172, 178, 107, 71};
  return kScale[static_cast<std::size_t>(std::clamp(std::lround(score * 4.0), 0L, 4L))];
}

std::string cell(double score, std::size_t width, bool colour) {
  if (std::isnan(score)) {
    return fmt::format("{:>{}}", "-", width);
  }
  const std::string text = fmt::format("{:>{}.0f} ", 100.0 * score, width - 1);
  return colour ? fmt::format("\x1b[48;5;{};38;5;16m{}\x1b[0m", score_colour(score), text) : text;
}

}  // namespace

std::string score_map(const std::string& corner, const std::vector<std::string>& rows,
                      const std::vector<std::string>& columns,
                      const std::vector<std::vector<double>>& scores, bool colour) {
  const std::size_t label =
      std::max(corner.size(), std::ranges::max(rows, {}, &std::string::size).size()) + 1;
  const std::size_t width =
      std::max<std::size_t>(6, std::ranges::max(columns, {}, &std::string::size).size() + 2);
  std::string text = fmt::format("{:<{}}", corner, label);
  for (const std::string& column : columns) {
    text += fmt::format("{:>{}} ", column, width - 1);
  }
  text += "\n";
  for (std::size_t row = 0; row < rows.size(); ++row) {
    text += fmt::format("{:>{}} ", rows[row], label - 1);
    for (const double score : scores[row]) {
      text += cell(score, width, colour);
    }
    text += "\n";
  }
  return text;
}

}  // namespace winnow::cli
