#include "apps/winnow/eval/task_data.h"

#include <fmt/format.h>

#include <memory>

#include "apps/winnow/flag_group.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "base/sha256.h"
#include "eval/python.h"
#include "eval/tasks/programs.h"

namespace winnow::cli {
namespace {

std::string digest_of(const std::string& file) {
  if (file.empty()) {
    return "";
  }
  Sha256 digest;
  digest.update(read_file(file));
  return digest.finish();
}

}  // namespace

void add_task_data_flags(CLI::App& command, TaskDataFlags& flags, bool optional) {
  const FlagGroup own(command, optional ? "A task with steps" : "");
  CLI::Option* task = own.open_option("--task", flags.task, "TASK", "The task (no default)");
  CLI::Option* data = own.open_option("--data", flags.data, "FILE",
                                      "Its cases as published: JSON lines or .csv (no default)");
  task->required(!optional)->needs(data);
  data->required(!optional)->needs(task);
  own.option("--shots", flags.shots, "N", "Demonstrations in front of every case");
  own.open_option(
      "--shots-data", flags.shots_data, "FILE",
      "File of demonstrations, in the format of --data; the first ones are used (no default)");
  own.option("--limit", flags.limit, "N", "Only the first cases; 0: all");
  own.option("--python", flags.python, "FILE",
             "humaneval, livecodebench: the Python that runs the programs, in a sandbox");
  own.option("--seconds", flags.seconds, "S",
             "humaneval, livecodebench: time for each program, for all its tests together");
}

eval::Json describe_task_data(const TaskDataFlags& flags) {
  eval::Json settings{{"task", flags.task},
                      {"data", flags.data},
                      {"data_sha256", digest_of(flags.data)},
                      {"shots", flags.shots},
                      {"shots_data", flags.shots_data},
                      {"shots_data_sha256", digest_of(flags.shots_data)},
                      {"limit", flags.limit}};
  const eval::TextTask* task = eval::find_text_task(flags.task);
  if (task != nullptr && task->program != nullptr) {
    settings["python"] = flags.python;
    settings["seconds"] = flags.seconds;
  }
  return settings;
}

TaskData read_task_data(const TaskDataFlags& flags) {
  require(flags.shots >= 0, "--shots {}: expected 0 or more", flags.shots);
  require(flags.limit >= 0, "--limit {}: expected 0 or more", flags.limit);
  require(flags.shots == 0 || !flags.shots_data.empty(),
          "--shots {}: --shots-data is needed, a file of the same format", flags.shots);
  TaskData data{eval::read_data(flags.data), {}};
  if (flags.shots > 0) {
    data.shots = eval::read_data(flags.shots_data);
  }
  if (flags.limit > 0 && static_cast<std::size_t>(flags.limit) < data.lines.size()) {
    data.lines.erase(data.lines.begin() + flags.limit, data.lines.end());
  }
  return data;
}

eval::Grade make_grade(const TaskDataFlags& flags, const eval::TextTask& task) {
  if (task.program == nullptr) {
    return eval::grade_text;
  }
  const auto python = std::make_shared<const eval::SandboxedPython>(
      flags.python, eval::SandboxLimits{.seconds = flags.seconds});
  return [python, &task](const eval::Question& question, const std::string& text) {
    return eval::grade_program(*python, task, question, text);
  };
}

}  // namespace winnow::cli
