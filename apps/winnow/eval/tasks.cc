// winnow eval tasks: the usual benchmarks, from local files in their published formats.
#include <fmt/format.h>

#include "apps/winnow/eval/answers.h"
#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/eval/task_data.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "engine/request.h"
#include "eval/tasks/choice_formats.h"
#include "eval/tasks/programs.h"

namespace winnow::cli {
namespace {

struct TasksFlags : EvalFlags {
  TaskDataFlags data;
  int max_tokens = 0;
  int samples = 1;
  SamplingOptions sampling;
};

Json settings_of(const TasksFlags& flags) {
  Json settings = describe_task_data(flags.data);
  settings["max_tokens"] = flags.max_tokens;
  settings["samples"] = flags.samples;
  settings["temperature"] = flags.sampling.temperature;
  settings["top_p"] = flags.sampling.top_p;
  return settings;
}

int run_choices(const TasksFlags& flags, const eval::ChoiceTask& task) {
  const TaskData data = read_task_data(flags.data);
  const auto questions = eval::load_choices(task, data.lines, data.shots, flags.data.shots);
  EvalRun run(flags.data.task, flags, settings_of(flags));
  eval::ChoiceOptions options;
  options.batch = flags.batch;
  options.on_progress = run.progress(static_cast<std::int64_t>(questions.size()), "questions");
  eval::score_choices(run.model(), run.tokenizer(), questions, options, run.journal());
  const auto summary = eval::summarize_choices(run.journal(), questions);
  Json results = eval::to_json(summary);
  results["headline"] = task.normalised ? "accuracy_norm" : "accuracy";
  return run.finish(results, [&] {
    const auto line = [](const char* name, const eval::Estimate& value) {
      print(fmt::format("{:<23}{} %\n", name,
                        with_error(100.0 * value.mean, 100.0 * value.error, 2)));
    };
    line("accuracy", summary.accuracy);
    line("accuracy per character", summary.accuracy_norm);
    print(fmt::format("questions              {}{}\n", grouped(summary.questions),
                      summary.skipped > 0
                          ? fmt::format(", {} too long and skipped", grouped(summary.skipped))
                          : ""));
    print(fmt::format("compression ratio      {:.2f}\n", summary.compression_ratio));
    print(fmt::format("cache                  {}\n", readable_bytes(summary.kv_bytes)));
  });
}

// pass@k for the powers of two up to the number of answers.
Json pass_at(const eval::Journal& journal, std::span<const eval::Question> questions, int samples) {
  Json result = Json::object();
  for (int k = 1; k <= samples; k *= 2) {
    eval::Mean mean;
    for (const eval::Question& question : questions) {
      const Json* record = journal.find(question.id);
      if (record == nullptr || !record->contains("answers")) {
        continue;
      }
      int correct = 0;
      for (const Json& answer : record->at("answers")) {
        correct += answer.at("correct").get<bool>() ? 1 : 0;
      }
      mean.add(eval::pass_at_k(samples, correct, k));
    }
    result[std::to_string(k)] = {{"mean", mean.estimate().mean}, {"error", mean.estimate().error}};
  }
  return result;
}

int run_answers(const TasksFlags& flags, const eval::TextTask& task) {
  require(flags.max_tokens >= 0, "--max-tokens {}: expected 0 or more", flags.max_tokens);
  engine::validate(flags.sampling);
  require(flags.samples == 1 || flags.sampling.temperature > 0.0,
          "--temperature 0: {} answers would all be the same", flags.samples);
  const TaskData data = read_task_data(flags.data);
  EvalRun run(flags.data.task, flags, settings_of(flags));
  const auto questions = eval::load_questions(
      task, data.lines, data.shots,
      {.shots = flags.data.shots, .max_tokens = flags.max_tokens, .chat = run.chat_encoder()},
      run.encoder());
  eval::AnswerOptions options;
  options.batch = flags.batch;
  options.samples = flags.samples;
  options.sampling = flags.sampling;
  options.sampling.seed = flags.seed;
  options.on_progress = run.progress(static_cast<std::int64_t>(questions.size()), "questions");
  eval::answer_questions(run.model(), run.tokenizer(), questions, make_grade(flags.data, task),
                         options, run.journal());
  const auto summary = eval::summarize_answers(run.journal(), questions);
  Json results = eval::to_json(summary);
  results["pass_at"] = pass_at(run.journal(), questions, flags.samples);
  return run.finish(results, [&] {
    print_answers(summary);
    for (const auto& [k, value] : results.at("pass_at").items()) {
      if (k != "1") {
        print(fmt::format("{:<19}{} %\n", "pass@" + k,
                          with_error(100.0 * value.at("mean").get<double>(),
                                     100.0 * value.at("error").get<double>(), 2)));
      }
    }
  });
}

int run_tasks(const TasksFlags& flags) {
  if (const eval::ChoiceTask* task = eval::find_choice_task(flags.data.task)) {
    require(flags.samples == 1 && !flags.chat,
            "--task {}: is answered by likelihood, without --samples and --chat", flags.data.task);
    return run_choices(flags, *task);
  }
  const eval::TextTask* task = eval::find_text_task(flags.data.task);
  require(task != nullptr,
          "--task {}: expected gsm8k, mmlu, hellaswag, arc, piqa, boolq, winogrande, math, aime, "
          "gpqa, humaneval or livecodebench",
          flags.data.task);
  return run_answers(flags, *task);
}

}  // namespace

void add_eval_tasks(CLI::App& eval, Run& run) {
  std::shared_ptr<TasksFlags> flags;
  CLI::App* command = add_command(
      eval, run, "tasks",
      "Accuracy on a benchmark: gsm8k, math, aime, gpqa, humaneval and livecodebench by generated "
      "answers, mmlu, hellaswag, arc, piqa, boolq and winogrande by likelihood",
      flags, run_tasks);
  add_task_data_flags(*command, flags->data);
  const FlagGroup own(*command);
  own.option(
      "--max-tokens", flags->max_tokens, "N",
      "Most tokens of an answer; 0: 256 (gsm8k), 1024 (math), 512 (humaneval), 4096 (others)");
  own.option("--samples", flags->samples, "N", "Answers per case; more give pass@k");
  add_temperature_flags(own, flags->sampling);
  add_chat_flag(*command, *flags);
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
