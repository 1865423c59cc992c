// The suite's report as a web page.
#pragma once

#include <span>
#include <string>

#include "eval/journal.h"
#include "eval/suite/conclusion.h"
#include "eval/suite/row.h"

namespace winnow::cli {

/// One self-contained page. `results`: the results' JSON, including "run".
std::string suite_page(std::span<const eval::SuiteRow> rows, const eval::Conclusion& conclusion,
                       const eval::Json& results);

}  // namespace winnow::cli
