// Whether a loss is within what was agreed, as far as a sample can tell.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "eval/statistics.h"

namespace winnow::eval {

/// Of a loss: above `high` with a probability of 5 % at most, below `low` likewise.
struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// Answers of two models to the same questions. Counts may be fractions, of a sample to come.
struct PairedCounts {
  double questions = 0.0;
  double only_base = 0.0;     // that the base alone answers correctly
  double only_student = 0.0;  // that the student alone does

  /// Share of right answers that the student loses.
  [[nodiscard]] double loss() const {
    return questions > 0.0 ? (only_base - only_student) / questions : 0.0;
  }
};

/// The value that Student's t exceeds with a probability of 5 %.
double student_quantile(double freedom);

/// Of a mean, by Student's t; unbounded for fewer than two values.
Interval interval_of(const Estimate& loss);
/// Of a loss of right answers, by Tango's score (1998), which also holds for small samples and
/// where all answers agree; unbounded without questions.
Interval interval_of(const PairedCounts& answers);

enum class Verdict : std::uint8_t {
  holds,      // the loss is at most the allowed one
  loses,      // it is more than that
  undecided,  // the sample does not tell
};
std::string_view verdict_name(Verdict verdict);

Verdict decide(const Interval& loss, double allowed);

/// How many more values, like those there are, would decide; nullopt when a hundred million would
/// not.
std::optional<std::int64_t> missing_values(const Estimate& loss, double allowed);
std::optional<std::int64_t> missing_values(const PairedCounts& answers, double allowed);

}  // namespace winnow::eval
