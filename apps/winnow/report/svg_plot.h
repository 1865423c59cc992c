// Plots as SVG, for reports.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow::cli {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;
  std::vector<std::pair<double, double>> line;  // a line through these points; may be empty
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;  // all x must be above 0
  std::vector<PlotSeries> series;
};

/// An <svg> element. Points that are not finite are left out.
std::string to_svg(const Plot& plot);

/// `text` with &, < and > escaped for HTML and XML.
std::string escape_markup(std::string_view text);

}  // namespace winnow::cli
