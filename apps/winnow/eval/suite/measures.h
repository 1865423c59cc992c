// The measures of the suite: each asks both models the same and returns a row or several.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/winnow/eval/suite/flags.h"
#include "eval/perplexity.h"
#include "eval/suite/dialogue.h"
#include "eval/suite/row.h"

namespace winnow::cli {

/// What a student may lose (docs/evaluate-your-model.md).
inline constexpr double kAllowedPoints = 1.0;      // of right answers, in per cent of all
inline constexpr double kAllowedPerplexity = 0.5;  // per cent more
inline constexpr double kAllowedKld = 0.02;        // nats per token
inline constexpr double kAllowedTime = 5.0;        // per cent more

/// A row of perplexities with its criterion, without values.
eval::SuiteRow perplexity_row(std::string id, std::string title, std::string what);

class SuiteMeasures {
 public:
  /// `run` is of the student. All must outlive the measures.
  SuiteMeasures(const SuiteFlags& flags, EvalRun& run, const engine::LoadedModel& base,
                const std::string& student_path);

  /// All rows that are wanted; those until then after a Ctrl-C.
  std::vector<eval::SuiteRow> run();

  [[nodiscard]] const SuitePlan& plan() const { return plan_; }
  /// The student's cache in the longest texts that were measured.
  [[nodiscard]] double compression_ratio() const { return ratio_; }

 private:
  using Rows = std::vector<eval::SuiteRow>;

  // measures.cc
  Rows text();
  Rows needle();
  Rows variables();
  Rows task();
  // session_measures.cc: what a chat keeps.
  Rows memory();
  Rows transcript();
  eval::SuiteRow sessions(const std::vector<eval::Conversation>& conversations);
  // cost_measures.cc: beyond the positions, and what a cache costs.
  Rows positions();
  Rows cost();

  /// Both models' answers, kept in sections "<name>/base" and "<name>/student" of the journal.
  eval::PairedAnswers ask(const std::string& name, std::span<const eval::Question> questions,
                          const eval::Grade& grade);
  [[nodiscard]] eval::Journal section(const std::string& name, bool of_student);
  /// A row of questions with its criterion, judged.
  eval::SuiteRow answers_row(eval::SuiteRow row, const eval::PairedAnswers& answers) const;
  /// Chats by the template, or as plain text where there is none.
  [[nodiscard]] eval::DialogueForm dialogue_form();
  [[nodiscard]] std::vector<std::int32_t> tokens_of(const std::string& text) const;
  /// Options for a text of so many tokens: whole windows of `context`, `most` at most unless 0.
  [[nodiscard]] eval::PerplexityOptions windows_of(std::int64_t tokens, int context,
                                                   int most) const;
  void note_ratio(double ratio, double tokens);

  const SuiteFlags& flags_;
  EvalRun& run_;
  const engine::LoadedModel& base_;
  std::string student_path_;
  int positions_;
  SuitePlan plan_;
  std::vector<std::string> names_;  // of texts
  std::vector<std::string> texts_;
  std::unique_ptr<const eval::Haystack> hay_;
  double ratio_ = 1.0;
  double ratio_tokens_ = 0.0;
};

}  // namespace winnow::cli
