// Whether a loss is within its limit, as far as a sample can show.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "eval/statistics.h"

namespace winnow::eval {

/// Bounds of a loss: it is above `high` with a probability of at most 5 %, below `low` likewise.
struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// Answers of two models to the same questions. Counts may be fractions, for a future sample.
struct PairedCounts {
  double questions = 0.0;
  double only_base = 0.0;     // questions that only the base answers correctly
  double only_student = 0.0;  // questions that only the student answers correctly

  /// Share of right answers that the student loses.
  [[nodiscard]] double loss() const {
    return questions > 0.0 ? (only_base - only_student) / questions : 0.0;
  }
};

/// The value that Student's t exceeds with a probability of 5 %.
double student_quantile(double freedom);

/// For a mean, by Student's t; unbounded for fewer than two values.
Interval interval_of(const Estimate& loss);
/// For a loss of right answers, by Tango's score (1998), which is also valid for small samples and
/// if all answers agree; unbounded without questions.
Interval interval_of(const PairedCounts& answers);

enum class Verdict : std::uint8_t {
  holds,      // the loss is at most the allowed one
  loses,      // it is more than that
  undecided,  // the sample is too small
};
std::string_view verdict_name(Verdict verdict);

Verdict decide(const Interval& loss, double allowed);

/// How many more values like the present ones would decide; nullopt when a hundred million would
/// not.
std::optional<std::int64_t> missing_values(const Estimate& loss, double allowed);
std::optional<std::int64_t> missing_values(const PairedCounts& answers, double allowed);

}  // namespace winnow::eval
