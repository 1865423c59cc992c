// The answer to "can I use this student?".
#pragma once

#include <span>
#include <string>

#include "eval/suite/row.h"

namespace winnow::eval {

struct Conclusion {
  Verdict verdict = Verdict::undecided;
  std::string sentence;  // "Yes: ...", "No: ...", "Not decided: ..."
};

/// Rows of cost are mentioned, but decide nothing. `ratio`: the measured compression ratio.
Conclusion conclude(std::span<const SuiteRow> rows, double ratio);

}  // namespace winnow::eval
