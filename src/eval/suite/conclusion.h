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

/// Cost rows are mentioned, but do not affect the answer. `ratio`: the measured compression ratio.
Conclusion conclude(std::span<const SuiteRow> rows, double ratio);

}  // namespace winnow::eval
