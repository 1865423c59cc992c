// winnow eval ruler: the 13 tasks of RULER.
#include "eval/ruler/ruler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "apps/winnow/eval/answers.h"
#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "base/sha256.h"
#include "eval/suite/manual_text.h"

namespace winnow::cli {
namespace {

struct RulerFlags : EvalFlags {
  std::string text;
  std::string squad;
  std::string hotpot;
  eval::RulerOptions ruler{.lengths = {4096}};
};

// A file that tasks read, and the flag for it.
struct TaskFile {
  eval::RulerReads read_as;
  const char* flag;
  const std::string* file;
};

std::array<TaskFile, 3> task_files(const RulerFlags& flags) {
  return {{{eval::RulerReads::text, "--text", &flags.text},
           {eval::RulerReads::squad, "--squad", &flags.squad},
           {eval::RulerReads::hotpot, "--hotpot", &flags.hotpot}}};
}

// The flag for a file that the task needs but that is not given; null if all are given.
// The manual replaces a missing text.
const char* lacking_flag(const RulerFlags& flags, const eval::RulerTask& task) {
  for (const TaskFile& file : task_files(flags)) {
    if (file.read_as == task.reads && file.read_as != eval::RulerReads::text &&
        file.file->empty()) {
      return file.flag;
    }
  }
  return nullptr;
}

// The tasks in --tasks, or all tasks whose files are given.
std::vector<std::string> chosen_tasks(const RulerFlags& flags) {
  std::vector<std::string> tasks;
  for (const std::string& name : flags.ruler.tasks) {
    const char* lacking = lacking_flag(flags, eval::find_ruler_task(name));
    require(lacking == nullptr, "--tasks {}: {} is needed", name, lacking);
    require(std::ranges::find(tasks, name) == tasks.end(), "--tasks {}: is there twice", name);
    tasks.push_back(name);
  }
  if (!tasks.empty()) {
    return tasks;
  }
  for (const eval::RulerTask& task : eval::ruler_tasks()) {
    if (const char* lacking = lacking_flag(flags, task); lacking != nullptr) {
      print_note(fmt::format("{} is left out: it needs {}\n", task.name, lacking));
    } else {
      tasks.push_back(task.name);
    }
  }
  return tasks;
}

// Refuses a file that none of the tasks reads.
void require_readers(const RulerFlags& flags, const std::vector<std::string>& tasks) {
  for (const TaskFile& file : task_files(flags)) {
    require(file.file->empty() || std::ranges::any_of(tasks,
                                                      [&file](const std::string& task) {
                                                        return eval::find_ruler_task(task).reads ==
                                                               file.read_as;
                                                      }),
            "{} {}: none of --tasks reads it", file.flag, *file.file);
  }
}

std::string digest_of_content(const std::string& content) {
  Sha256 digest;
  digest.update(content);
  return digest.finish();
}

Json describe_ruler(const RulerFlags& flags, const std::vector<std::string>& tasks,
                    const std::string& text) {
  Json settings{{"text", flags.text},
                {"text_sha256", digest_of_content(text)},
                {"lengths", flags.ruler.lengths},
                {"tasks", tasks},
                {"samples", flags.ruler.samples}};
  for (const auto& [name, file] : {std::pair{"squad", &flags.squad}, {"hotpot", &flags.hotpot}}) {
    if (!file->empty()) {
      settings[name] = *file;
      settings[std::string(name) + "_sha256"] = digest_of_content(read_file(*file));
    }
  }
  return settings;
}

Json number_or_null(double value) {
  return std::isnan(value) ? Json() : Json(value);
}

void put_score(Json& json, const eval::Estimate& score) {
  json["score"] = score.count > 0 ? Json(score.mean) : Json();
  json["score_error"] = number_or_null(score.error);
}

// The mean over independent tasks with equal weights.
eval::Estimate mean_of_tasks(const std::vector<eval::Estimate>& scores) {
  eval::Mean mean;
  double squares = 0.0;
  for (const eval::Estimate& score : scores) {
    if (score.count > 0) {
      mean.add(score.mean);
      squares += score.error * score.error;
    }
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, mean.count()));
  return {mean.mean(), std::sqrt(squares) / count, static_cast<std::int64_t>(mean.count())};
}

// For every length: the mean of the tasks' scores, and each task's score and costs.
Json scores_by_length(const eval::RulerOptions& options, const eval::Journal& journal,
                      std::span<const eval::Question> questions) {
  Json rows = Json::array();
  const auto samples = static_cast<std::size_t>(options.samples);
  for (const int length : options.lengths) {
    Json tasks = Json::object();
    std::vector<eval::Estimate> scores;
    for (const std::string& task : options.tasks) {
      const auto own = questions.first(samples);
      questions = questions.subspan(samples);
      scores.push_back(eval::mean_grade(journal, own, "score"));
      put_score(tasks[task], scores.back());
      tasks[task].update(eval::to_json(eval::summarize_answers(journal, own)));
    }
    Json row{{"length", length}};
    put_score(row, mean_of_tasks(scores));
    row["tasks"] = std::move(tasks);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string ruler_cell(const Json& of) {
  const auto number = [&of](const char* key) {
    return of.at(key).is_null() ? std::nan("") : 100.0 * of.at(key).get<double>();
  };
  return of.at("score").is_null() ? "-" : with_error(number("score"), number("score_error"), 1);
}

std::string ruler_line(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("{:<16}", name);
  for (const std::string& one : cells) {
    text += fmt::format(" {:>13}", one);
  }
  return text + "\n";
}

// Scores in per cent, by task and length.
std::string ruler_table(const std::vector<std::string>& tasks, const Json& rows) {
  const auto cells = [&rows](const auto& make) {
    std::vector<std::string> result;
    std::ranges::transform(rows, std::back_inserter(result), make);
    return result;
  };
  std::string text = ruler_line("score, %", cells([](const Json& row) {
                                  return fmt::format("{} tokens", row.at("length").get<int>());
                                }));
  for (const std::string& task : tasks) {
    text += ruler_line(
        task, cells([&](const Json& row) { return ruler_cell(row.at("tasks").at(task)); }));
  }
  return text + ruler_line("mean of tasks", cells([](const Json& row) { return ruler_cell(row); }));
}

int run_ruler(const RulerFlags& flags) {
  eval::RulerOptions ruler = flags.ruler;
  ruler.seed = flags.seed;
  ruler.tasks = chosen_tasks(flags);
  require_readers(flags, ruler.tasks);
  const std::string text =
      flags.text.empty() ? std::string(eval::manual_text()) : read_text(flags.text);
  // Reads files first: loading a model takes long.
  auto squad = flags.squad.empty() ? std::nullopt : std::optional(eval::read_squad(flags.squad));
  auto hotpot =
      flags.hotpot.empty() ? std::nullopt : std::optional(eval::read_hotpot(flags.hotpot));
  EvalRun run("ruler", flags, describe_ruler(flags, ruler.tasks, text));
  const eval::RulerSource source{.essays = {run.tokenizer(), text},
                                 .vocabulary = eval::Vocabulary(text),
                                 .squad = std::move(squad),
                                 .hotpot = std::move(hotpot)};
  const auto questions = eval::make_ruler(source, run.begun_encoder(), ruler);
  eval::AnswerOptions options;
  options.batch = flags.batch;
  options.on_progress = run.progress(static_cast<std::int64_t>(questions.size()), "prompts");
  eval::answer_questions(run.model(), run.tokenizer(), questions, eval::grade_ruler, options,
                         run.journal());
  const auto summary = eval::summarize_answers(run.journal(), questions);
  Json results = eval::to_json(summary);
  results["by_length"] = scores_by_length(ruler, run.journal(), questions);
  return run.finish(results, [&] {
    print_answers(summary);
    print("\n" + ruler_table(ruler.tasks, results.at("by_length")));
  });
}

}  // namespace

void add_eval_ruler(CLI::App& eval, Run& run) {
  std::shared_ptr<RulerFlags> flags;
  CLI::App* command = add_command(
      eval, run, "ruler", "RULER: 13 tasks of finding, following and counting in long texts", flags,
      run_ruler);
  const FlagGroup own(*command);
  own.open_option("--text", flags->text, "FILE",
                  "Essays to hide needles in, and words; - is standard input (default: winnow's "
                  "manual)");
  add_lengths_flag(own, flags->ruler.lengths);
  std::vector<std::string> names;
  std::ranges::transform(eval::ruler_tasks(), std::back_inserter(names), &eval::RulerTask::name);
  own.open_option(
         "--tasks", flags->ruler.tasks, "TASK",
         fmt::format("Only these: {} (default: all that have their files)", fmt::join(names, ",")))
      ->delimiter(',');
  own.option("--samples", flags->ruler.samples, "N", "Prompts per length and task");
  own.open_option("--squad", flags->squad, "FILE",
                  "qa_1: SQuAD 2.0 as published, dev-v2.0.json (no default)");
  own.open_option("--hotpot", flags->hotpot, "FILE",
                  "qa_2: HotpotQA as published, hotpot_dev_distractor_v1.json (no default)");
  add_chat_flag(*command, *flags);
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
