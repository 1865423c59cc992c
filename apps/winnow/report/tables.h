// Results of `winnow eval` as tables, with the best of each column marked, and plots.
#pragma once

#include <string>
#include <vector>

#include "apps/winnow/report/svg_plot.h"
#include "eval/journal.h"

namespace winnow::cli {

struct ResultFile {
  std::string name;  // without .json
  eval::Json json;
};

struct Cell {
  std::string text;
  bool best = false;
};

/// All results of one measure on the same data.
struct ResultTable {
  std::string title;
  std::string settings;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;  // the first column names the run
  std::vector<Plot> plots;
};

/// An overview of all measures, then their tables in order of first appearance. Equal values are
/// equally best; a column with equal values only has no best.
std::vector<ResultTable> make_tables(const std::vector<ResultFile>& results);

}  // namespace winnow::cli
