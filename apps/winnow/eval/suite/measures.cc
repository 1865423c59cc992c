#include "apps/winnow/eval/suite/measures.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "eval/needle.h"
#include "eval/perplexity.h"
#include "eval/suite/manual_text.h"
#include "eval/tasks/text_tasks.h"
#include "eval/variables.h"

namespace winnow::cli {
namespace {

// Short texts are cut into shorter windows, so that there are a few.
constexpr int kLeastWindows = 8;
constexpr int kLeastContext = 128;

std::string listed(const std::vector<int>& lengths) {
  std::string text;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == lengths.size() ? " and " : ", ") + grouped(lengths[i]);
  }
  return text;
}

}  // namespace

SuiteMeasures::SuiteMeasures(const SuiteFlags& flags, EvalRun& run, const engine::LoadedModel& base,
                             const std::string& student_path)
    : flags_(flags),
      run_(run),
      base_(base),
      student_path_(student_path),
      positions_(std::min(base.spec().max_positions, run.model().spec().max_positions)),
      plan_(plan_suite(flags, positions_)) {
  for (const std::string& file : flags.texts) {
    names_.push_back(std::filesystem::path(file).filename().string());
    texts_.push_back(read_text(file));
  }
  if (texts_.empty()) {
    names_.emplace_back("winnow's manual");
    texts_.emplace_back(eval::manual_text());
  }
  hay_ = std::make_unique<const eval::Haystack>(run.tokenizer(), texts_.front());
}

eval::SuiteRow perplexity_row(std::string id, std::string title, std::string what) {
  return {.id = std::move(id),
          .title = std::move(title),
          .what = std::move(what),
          .criterion = fmt::format("at most {:g} % more", kAllowedPerplexity),
          .unit = "",
          .loss_unit = "%",
          .sample = "windows",
          .digits = 3,
          .more_is_better = false};
}

std::vector<eval::SuiteRow> SuiteMeasures::run() {
  using Measure = Rows (SuiteMeasures::*)();
  const std::pair<const char*, Measure> all[] = {{"text", &SuiteMeasures::text},
                                                 {"needle", &SuiteMeasures::needle},
                                                 {"variables", &SuiteMeasures::variables},
                                                 {"memory", &SuiteMeasures::memory},
                                                 {"transcript", &SuiteMeasures::transcript},
                                                 {"task", &SuiteMeasures::task},
                                                 {"positions", &SuiteMeasures::positions},
                                                 {"cost", &SuiteMeasures::cost}};
  prepare();
  Rows rows;
  for (const auto& [name, measure] : all) {
    if (wants_row(flags_, name) && !interrupted()) {
      for (eval::SuiteRow& row : (this->*measure)()) {
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

eval::Journal SuiteMeasures::section(const std::string& name, bool of_student) {
  return run_.journal().section(name).section(of_student ? "student" : "base");
}

eval::PairedAnswers SuiteMeasures::ask(const std::string& name,
                                       std::span<const eval::Question> questions,
                                       const eval::Grade& grade) {
  eval::AnswerOptions options;
  options.batch = flags_.batch;
  for (const bool of_student : {false, true}) {
    if (interrupted()) {
      break;
    }
    options.on_progress =
        run_.progress(static_cast<std::int64_t>(questions.size()),
                      fmt::format("{}, {}", name, of_student ? "student" : "base"));
    eval::Journal journal = section(name, of_student);
    eval::answer_questions(of_student ? run_.model() : base_, run_.tokenizer(), questions, grade,
                           options, journal);
  }
  const auto summary = eval::summarize_answers(section(name, true), questions);
  note_ratio(summary.compression_ratio, summary.prompt_tokens);
  return eval::compare_answers(section(name, false), section(name, true), questions);
}

eval::SuiteRow SuiteMeasures::answers_row(eval::SuiteRow row,
                                          const eval::PairedAnswers& answers) const {
  row.criterion = fmt::format("at most {:g} point fewer right answers", kAllowedPoints);
  row.unit = "%";
  row.loss_unit = "points";
  eval::judge_answers(row, answers, kAllowedPoints);
  return row;
}

std::vector<std::int32_t> SuiteMeasures::tokens_of(const std::string& text) const {
  return run_.tokenizer().encode(text, {.add_special = false, .parse_special = false});
}

// Only whole windows: a partial one would count as much as a whole one in the error estimate.
eval::PerplexityOptions SuiteMeasures::windows_of(std::int64_t tokens, int context,
                                                  int most) const {
  eval::PerplexityOptions options;
  options.prefix = run_.prefix();
  options.context = context;
  const std::int64_t step = context - static_cast<std::int64_t>(options.prefix.size());
  const std::int64_t whole = std::max<std::int64_t>(1, tokens / step);
  options.max_tokens = step * (most > 0 ? std::min<std::int64_t>(most, whole) : whole);
  options.batch = flags_.batch;
  return options;
}

void SuiteMeasures::note_ratio(double ratio, double tokens) {
  if (tokens >= ratio_tokens_) {
    ratio_ = ratio;
    ratio_tokens_ = tokens;
  }
}

SuiteMeasures::Rows SuiteMeasures::text() {
  Rows rows;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const auto tokens = tokens_of(texts_[i]);
    eval::Journal journal = run_.journal().section(fmt::format("text {}", i));
    const auto count = static_cast<int>(tokens.size());
    const int context = std::min(plan_.context, std::max(kLeastContext, count / kLeastWindows));
    eval::PerplexityOptions options = windows_of(count, context, plan_.windows);
    options.journal = &journal;
    options.on_progress = run_.progress(options.max_tokens, "tokens of " + names_[i]);
    const auto result = eval::measure_perplexity(run_.model(), &base_, tokens, options);
    if (!result.divergence) {
      continue;  // interrupted before the first window
    }
    const std::string what =
        fmt::format("{}, {} tokens in windows of {}, teacher-forced.", names_[i],
                    grouped(result.tokens), grouped(options.context));
    eval::SuiteRow perplexity =
        perplexity_row(fmt::format("perplexity {}", i), "Perplexity of " + names_[i], what);
    perplexity.base = std::exp(result.divergence->reference_nll);
    perplexity.student = result.perplexity();
    eval::judge_ratio(perplexity, result.divergence->change, kAllowedPerplexity);
    eval::SuiteRow kld{.id = fmt::format("kld {}", i),
                       .title = "Divergence on " + names_[i],
                       .what = what + " KL divergence of the student from the base.",
                       .criterion = fmt::format("at most {:g} nats per token", kAllowedKld),
                       .unit = "nats",
                       .loss_unit = "nats",
                       .sample = "windows",
                       .digits = 4,
                       .more_is_better = false,
                       .base = {},
                       .student = result.divergence->kld};
    eval::judge_value(
        kld,
        {result.divergence->kld, result.divergence->kld_error, result.divergence->change.count},
        kAllowedKld);
    kld.details["top1_agreement"] = result.divergence->top1_agreement;
    for (eval::SuiteRow* row : {&perplexity, &kld}) {
      row->details["compression_ratio"] = result.compression_ratio;
      rows.push_back(std::move(*row));
    }
    note_ratio(result.compression_ratio, options.context);
  }
  return rows;
}

SuiteMeasures::Rows SuiteMeasures::needle() {
  const auto answers = ask("needle", asked_.needles, eval::grade_needle);
  return {answers_row({.id = "needle",
                       .title = "Needles in a long text",
                       .what = fmt::format("A fact at five depths of texts of {} tokens, asked for "
                                           "at the end.",
                                           listed(lengths()))},
                      answers)};
}

SuiteMeasures::Rows SuiteMeasures::variables() {
  const auto answers = ask("variables", asked_.variables, eval::grade_variables);
  return {answers_row({.id = "variables",
                       .title = "Variables tracked",
                       .what = fmt::format("Three chains of three assignments scattered over texts "
                                           "of {} tokens; the value of a last variable is asked.",
                                           listed(lengths()))},
                      answers)};
}

SuiteMeasures::Rows SuiteMeasures::task() {
  if (flags_.task.task.empty()) {
    return {};
  }
  const eval::TextTask* const task = eval::find_text_task(flags_.task.task);
  const auto answers = ask("task", asked_.task, make_grade(flags_.task, *task));
  return {answers_row(
      {.id = "task",
       .title = "Task " + flags_.task.task,
       .what = fmt::format("{}, answered with steps of reasoning.",
                           std::filesystem::path(flags_.task.data).filename().string())},
      answers)};
}

}  // namespace winnow::cli
