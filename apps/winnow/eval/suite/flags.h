// The options of `winnow eval suite`.
#pragma once

#include <CLI/CLI.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/winnow/eval/run.h"
#include "apps/winnow/eval/task_data.h"

namespace winnow::cli {

/// `load.model` is the base.
struct SuiteFlags : EvalFlags {
  std::string compressed;  // the student; empty: the base itself, with --cache and the like
  std::vector<std::string> texts;
  TaskDataFlags task;
  std::vector<std::string> rows;  // empty: all
  bool quick = false;
  int samples = 0;     // per row of questions; 0: 300, quick 40
  int context = 0;     // 0: 8,192, quick 2,048
  int transcript = 0;  // 0: as context
  int turns = 10;
  std::string html;
};

/// The rows of --rows, in the report's order.
inline constexpr std::array<std::string_view, 8> kSuiteRows{
    "text", "needle", "variables", "memory", "transcript", "task", "positions", "cost"};

void add_suite_flags(CLI::App& command, SuiteFlags& flags);

/// The measurements that the flags select.
struct SuitePlan {
  int samples = 0;
  int context = 0;            // of windows, needles and variables
  int transcript = 0;         // tokens of an agent's transcript
  int sessions = 0;           // conversations that are also saved, resumed and forked
  int pairs = 0;              // pairs of generations that are timed
  int steps = 0;              // tokens of each
  int windows = 0;            // maximum per text; 0: all
  int stretched_windows = 0;  // the same for windows beyond the models' positions
};

/// Error for flags that are invalid for every model.
void check_suite(const SuiteFlags& flags);
/// `positions`: the number that both models have.
SuitePlan plan_suite(const SuiteFlags& flags, int positions);

/// The base, dense, loaded like --reference (reference.h), for the student in `student`.
std::unique_ptr<const engine::LoadedModel> load_suite_base(const SuiteFlags& flags,
                                                           const LoadOptions& student);

/// Whether --rows contains it, or is empty.
bool wants_row(const SuiteFlags& flags, const std::string& row);

/// All settings that determine the records.
Json describe_suite(const SuiteFlags& flags);

}  // namespace winnow::cli
