// A task's data files, as the flags name them.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "eval/questions.h"
#include "eval/tasks/data_file.h"
#include "eval/tasks/text_tasks.h"

namespace winnow::cli {

struct TaskDataFlags {
  std::string task;
  std::string data;
  std::string shots_data;
  int shots = 0;
  int limit = 0;
  std::string python = "python3";
  double seconds = 10.0;
};

/// --task and --data, which must be given unless `optional`, --shots, --shots-data, --limit,
/// --python and --seconds.
void add_task_data_flags(CLI::App& command, TaskDataFlags& flags, bool optional = false);
/// The flags that determine results, with digests of the files.
eval::Json describe_task_data(const TaskDataFlags& flags);

struct TaskData {
  std::vector<eval::DataLine> lines;
  std::vector<eval::DataLine> shots;
};
TaskData read_task_data(const TaskDataFlags& flags);

/// Grades the answers of a text task, which outlives this; programs in a sandboxed --python.
eval::Grade make_grade(const TaskDataFlags& flags, const eval::TextTask& task);

}  // namespace winnow::cli
