// The suite's measures: each asks both models the same and returns one or more rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/winnow/eval/suite/flags.h"
#include "eval/perplexity.h"
#include "eval/suite/dialogue.h"
#include "eval/suite/row.h"
#include "eval/suite/transcript.h"

namespace winnow::cli {

/// The losses that a student is allowed (docs/evaluate-your-model.md).
inline constexpr double kAllowedPoints = 1.0;      // in per cent of all answers, fewer right ones
inline constexpr double kAllowedPerplexity = 0.5;  // per cent more
inline constexpr double kAllowedKld = 0.02;        // nats per token
inline constexpr double kAllowedTime = 5.0;        // per cent more

/// A row of perplexities with its criterion, without values.
eval::SuiteRow perplexity_row(std::string id, std::string title, std::string what);

class SuiteMeasures {
 public:
  /// `run` is the student's. All arguments must outlive the measures.
  SuiteMeasures(const SuiteFlags& flags, EvalRun& run, const engine::LoadedModel& base,
                const std::string& student_path);

  /// All selected rows; after a Ctrl-C those finished until then. Error, before either model
  /// answers anything, for rows that ask more than the models have positions for.
  std::vector<eval::SuiteRow> run();

  [[nodiscard]] const SuitePlan& plan() const { return plan_; }
  /// The student's compression ratio in the longest measured texts.
  [[nodiscard]] double compression_ratio() const { return ratio_; }

 private:
  using Rows = std::vector<eval::SuiteRow>;
  struct Transcripts {
    eval::TranscriptOptions options;
    std::vector<eval::Question> questions;
  };
  /// What the rows ask.
  struct Asked {
    std::vector<eval::Question> needles;
    std::vector<eval::Question> variables;
    std::vector<eval::Conversation> conversations;
    Transcripts notes;
    Transcripts calls;
    std::vector<eval::Question> task;
  };

  // asked.cc
  /// Fills in what the selected rows ask.
  void prepare();
  /// Questions or texts of one row, by its name; rows without a length of their own need none.
  void prepare_row(const std::string& row);
  /// Error unless every prompt fits with its answer.
  void require_positions(std::span<const eval::Question> questions) const;
  [[nodiscard]] Transcripts make_transcripts(eval::TranscriptEnd end);
  [[nodiscard]] std::vector<int> lengths() const;  // of texts in which something is hidden

  // measures.cc
  Rows text();
  Rows needle();
  Rows variables();
  Rows task();
  // session_measures.cc: what a chat's cache keeps.
  Rows memory();
  Rows transcript();
  eval::SuiteRow transcript_row(eval::SuiteRow row, const Transcripts& asked);
  eval::SuiteRow sessions();
  // cost_measures.cc: positions beyond the model's, and the costs of a cache.
  Rows positions();
  Rows cost();

  /// Both models' answers, stored in sections "<name>/base" and "<name>/student" of the journal.
  eval::PairedAnswers ask(const std::string& name, std::span<const eval::Question> questions,
                          const eval::Grade& grade);
  [[nodiscard]] eval::Journal section(const std::string& name, bool of_student);
  /// A row of questions with its criterion and verdict.
  eval::SuiteRow answers_row(eval::SuiteRow row, const eval::PairedAnswers& answers) const;
  /// Chats by the template, or as plain text if there is none.
  [[nodiscard]] eval::DialogueForm dialogue_form();
  [[nodiscard]] std::vector<std::int32_t> tokens_of(const std::string& text) const;
  /// Options for a text of this many tokens: whole windows of `context`, at most `most` unless 0.
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
  Asked asked_;
  double ratio_ = 1.0;
  double ratio_tokens_ = 0.0;
};

}  // namespace winnow::cli
