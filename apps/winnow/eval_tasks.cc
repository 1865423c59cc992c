// winnow eval tasks: the usual benchmarks, from local files in their published formats.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/sha256.h"
#include "eval.h"
#include "eval/tasks/choice_formats.h"
#include "eval/tasks/text_tasks.h"
#include "eval_answers.h"
#include "eval_run.h"
#include "output.h"

namespace winnow::cli {
namespace {

struct TasksFlags : EvalFlags {
  std::string task;
  std::string data;
  std::string shots_data;
  int shots = 0;
  int limit = 0;
  int max_tokens = 0;
  int samples = 1;
  double temperature = 0.0;
  double top_p = 1.0;
  std::string python = "python3";
  double seconds = 10.0;
};

std::string digest_of(const std::string& file) {
  if (file.empty()) {
    return "";
  }
  Sha256 digest;
  digest.update(read_file(file));
  return digest.finish();
}

Json settings_of(const TasksFlags& flags) {
  return {{"task", flags.task},
          {"data", flags.data},
          {"data_sha256", digest_of(flags.data)},
          {"shots", flags.shots},
          {"shots_data", flags.shots_data},
          {"shots_data_sha256", digest_of(flags.shots_data)},
          {"limit", flags.limit},
          {"max_tokens", flags.max_tokens},
          {"samples", flags.samples},
          {"temperature", flags.temperature},
          {"top_p", flags.top_p},
          {"python", flags.python},
          {"seconds", flags.seconds}};
}

struct Data {
  std::vector<eval::DataLine> lines;
  std::vector<eval::DataLine> shots;
};

Data read(const TasksFlags& flags) {
  require(flags.shots >= 0, "--shots {}: expected 0 or more", flags.shots);
  require(flags.shots == 0 || !flags.shots_data.empty(),
          "--shots {}: --shots-data is needed, a file of the same format", flags.shots);
  Data data{eval::read_data(flags.data), {}};
  if (flags.shots > 0) {
    data.shots = eval::read_data(flags.shots_data);
  }
  if (flags.limit > 0 && static_cast<std::size_t>(flags.limit) < data.lines.size()) {
    data.lines.erase(data.lines.begin() + flags.limit, data.lines.end());
  }
  return data;
}

int run_choices(const TasksFlags& flags, const eval::ChoiceTask& task) {
  const Data data = read(flags);
  const auto questions = eval::load_choices(task, data.lines, data.shots, flags.shots);
  EvalRun run(flags.task, flags, settings_of(flags));
  eval::ChoiceOptions options;
  options.batch = flags.batch;
  options.on_progress = run.progress(static_cast<std::int64_t>(questions.size()), "questions");
  eval::score_choices(run.model(), run.tokenizer(), questions, options, run.journal());
  const auto summary = eval::summarize_choices(run.journal(), questions);
  Json results = eval::to_json(summary);
  results["headline"] = task.normalised ? "accuracy_norm" : "accuracy";
  return run.finish(results, [&] {
    const auto line = [](const char* name, const eval::Estimate& value) {
      print(fmt::format("{:<19}{} %\n", name,
                        with_error(100.0 * value.mean, 100.0 * value.error, 2)));
    };
    line("accuracy", summary.accuracy);
    line("accuracy per byte", summary.accuracy_norm);
    print(fmt::format("questions          {}{}\n", grouped(summary.questions),
                      summary.skipped > 0
                          ? fmt::format(", {} too long and skipped", grouped(summary.skipped))
                          : ""));
    print(fmt::format("compression ratio  {:.2f}\n", summary.compression_ratio));
    print(fmt::format("cache              {}\n", readable_bytes(summary.kv_bytes)));
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
  const Data data = read(flags);
  EvalRun run(flags.task, flags, settings_of(flags));
  const auto questions = eval::load_questions(
      task, data.lines, data.shots,
      {.shots = flags.shots, .max_tokens = flags.max_tokens, .chat = flags.chat}, run.encoder());
  std::shared_ptr<const eval::SandboxedPython> python;
  eval::Grade grade = eval::grade_text;
  if (task.name == "humaneval") {
    python = std::make_shared<const eval::SandboxedPython>(
        flags.python, eval::SandboxLimits{.seconds = flags.seconds});
    grade = [python](const eval::Question& question, const std::string& text) {
      return eval::grade_program(*python, question, text);
    };
  }
  eval::AnswerOptions options;
  options.batch = flags.batch;
  options.samples = flags.samples;
  options.sampling.temperature = flags.temperature;
  options.sampling.top_p = flags.top_p;
  options.sampling.seed = flags.seed;
  options.on_progress = run.progress(static_cast<std::int64_t>(questions.size()), "questions");
  eval::answer_questions(run.model(), run.tokenizer(), questions, grade, options, run.journal());
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
  if (const eval::ChoiceTask* task = eval::find_choice_task(flags.task)) {
    require(flags.samples == 1 && !flags.chat,
            "--task {}: is answered by likelihood, without --samples and --chat", flags.task);
    return run_choices(flags, *task);
  }
  const eval::TextTask* task = eval::find_text_task(flags.task);
  require(task != nullptr,
          "--task {}: expected gsm8k, mmlu, hellaswag, arc, piqa, boolq, winogrande, math, aime or "
          "humaneval",
          flags.task);
  return run_answers(flags, *task);
}

}  // namespace

void add_eval_tasks(CLI::App& eval, Run& run) {
  std::shared_ptr<TasksFlags> flags;
  CLI::App* command = add_command(
      eval, run, "tasks",
      "Accuracy on a benchmark: gsm8k, math, aime and humaneval by generated answers, mmlu, "
      "hellaswag, arc, piqa, boolq and winogrande by likelihood",
      flags, run_tasks);
  command->add_option("--task", flags->task, "Which (no default)")->required()->type_name("TASK");
  command->add_option("--data", flags->data, "Its cases: JSON lines as published (no default)")
      ->required()
      ->type_name("FILE");
  command->add_option("--shots", flags->shots, "Demonstrations in front of every case")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--shots-data", flags->shots_data,
                   "Where they are taken from: the first ones of a file like --data (no default)")
      ->type_name("FILE");
  command->add_option("--limit", flags->limit, "Only the first cases; 0: all")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--max-tokens", flags->max_tokens,
                   "Most tokens of an answer; 0: 256 (gsm8k), 1024 (math), 4096 (aime), 512 "
                   "(humaneval)")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--samples", flags->samples, "Answers per case; more give pass@k")
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--temperature", flags->temperature, "Of answers; 0: the most likely tokens")
      ->capture_default_str()
      ->type_name("T");
  command->add_option("--top-p", flags->top_p, "Sample from this share of the probability")
      ->capture_default_str()
      ->type_name("P");
  command->add_option("--python", flags->python, "humaneval: what runs the programs, sandboxed")
      ->capture_default_str()
      ->type_name("FILE");
  command->add_option("--seconds", flags->seconds, "humaneval: time for each program")
      ->capture_default_str()
      ->type_name("S");
  add_chat_flag(*command, *flags);
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
