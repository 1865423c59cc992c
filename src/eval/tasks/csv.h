// Data sets as comma-separated values.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "eval/tasks/data_file.h"

namespace winnow::eval {

/// Rows (RFC 4180: quoted fields may hold commas, line breaks and doubled quotes) as objects of
/// texts, named by the first row. Throws Error naming the line when a quote stays open or a row has
/// another number of fields than the first.
std::vector<DataLine> read_csv(std::istream& stream, const std::string& name);

}  // namespace winnow::eval
