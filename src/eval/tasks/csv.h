// Data sets as comma-separated values.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "eval/tasks/data_file.h"

namespace winnow::eval {

/// Rows (RFC 4180: quoted fields may contain commas, line breaks and doubled quotes) as objects of
/// texts, with the first row's names. Throws Error naming the line when a quote stays open or a row
/// has a different number of fields than the first.
std::vector<DataLine> read_csv(std::istream& stream, const std::string& name);

}  // namespace winnow::eval
