// A row of the suite's report: one measure of two models, a criterion, a verdict.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "eval/journal.h"
#include "eval/questions.h"
#include "eval/suite/verdict.h"

namespace winnow::eval {

struct SuiteRow {
  enum class Kind : std::uint8_t {
    quality,    // of the model's output
    exactness,  // of sessions: passes or fails
    cost,       // in memory and time
  };

  std::string id = {};
  std::string title = {};
  std::string what = {};       // the measure, in a sentence
  std::string criterion = {};  // in words
  Kind kind = Kind::quality;
  std::string unit = {};             // of base and student: "%", "nats" ...
  std::string loss_unit = {};        // "points", "%"
  std::string sample = "questions";  // "windows" ...: the unit of count
  int digits = 1;                    // after the decimal point
  bool more_is_better = true;

  std::optional<double> base = {};  // nullopt: the base is the standard itself, or no data
  std::optional<double> student = {};
  // Standard errors; NaN if unknown.
  double base_error = std::numeric_limits<double>::quiet_NaN();
  double student_error = std::numeric_limits<double>::quiet_NaN();
  Estimate loss = {};      // of the student, in loss_unit
  Interval interval = {};  // of the loss
  double allowed = 0.0;    // the maximum loss
  std::int64_t count = 0;  // samples
  Verdict verdict = Verdict::undecided;
  std::optional<std::int64_t> missing = {};  // further samples that would decide
  std::string note = {};                     // a remark for the reader
  Json details = Json::object();

  /// "holds", "loses", "not decided", or of sessions "passes" or "fails".
  [[nodiscard]] std::string verdict_word() const;
  /// "needs about 31 more questions", or empty.
  [[nodiscard]] std::string need() const;
  /// Both: "not decided: needs about 31 more questions".
  [[nodiscard]] std::string verdict_text() const;
  /// The student's value minus the base's, with the sign that a reader expects: a loss of right
  /// answers is negative, one of perplexity positive.
  [[nodiscard]] double difference() const { return more_is_better ? 0.0 - loss.mean : loss.mean; }
};

Json to_json(const SuiteRow& row);

/// Answers of two models to the same questions.
struct PairedAnswers {
  PairedCounts counts;
  Estimate base;  // share of right answers
  Estimate student;
  Estimate loss;  // base minus student, question by question
  std::int64_t skipped = 0;
};
/// For the questions that both have answered.
PairedAnswers compare_answers(const Journal& base, const Journal& student,
                              std::span<const Question> questions);

/// Fills in values, loss and verdict; allows at most `points` per cent fewer right answers. If the
/// base answers almost nothing correctly, it has nothing to lose: such a row does not hold.
void judge_answers(SuiteRow& row, const PairedAnswers& answers, double points);
/// The same for a loss that is itself the student's value: at most `allowed`.
void judge_value(SuiteRow& row, const Estimate& loss, double allowed);
/// The same for a loss that is the mean logarithm of a ratio: at most `percent` more.
void judge_ratio(SuiteRow& row, const Estimate& logarithm, double percent);

}  // namespace winnow::eval
