#include "eval/suite/row.h"

#include <fmt/format.h>

#include <cmath>

namespace winnow::eval {
namespace {

constexpr double kLeastBase = 0.2;  // right answers that a base needs for a meaningful loss

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json optional_number(const std::optional<double>& value) {
  return value ? number_or_null(*value) : Json();
}

double percent_of(double logarithm) {
  return 100.0 * std::expm1(logarithm);
}

std::optional<double> share_correct(const Json* record) {
  if (record == nullptr || !record->contains("answers")) {
    return std::nullopt;
  }
  Mean correct;
  for (const Json& answer : record->at("answers")) {
    correct.add(answer.at("correct").get<bool>() ? 1.0 : 0.0);
  }
  return correct.mean();
}

std::string_view kind_name(SuiteRow::Kind kind) {
  return kind == SuiteRow::Kind::quality     ? "quality"
         : kind == SuiteRow::Kind::exactness ? "exactness"
                                             : "cost";
}

}  // namespace

std::string SuiteRow::verdict_word() const {
  if (kind == Kind::exactness && verdict != Verdict::undecided) {
    return verdict == Verdict::holds ? "passes" : "fails";
  }
  return std::string(verdict_name(verdict));
}

std::string SuiteRow::need() const {
  if (verdict != Verdict::undecided || !missing) {
    return "";
  }
  const std::string one = sample.substr(0, sample.size() - 1);  // without the plural's s
  return fmt::format("needs about {} more {}", *missing, *missing == 1 ? one : sample);
}

std::string SuiteRow::verdict_text() const {
  const std::string more = need();
  return more.empty() ? verdict_word() : fmt::format("{}: {}", verdict_word(), more);
}

Json to_json(const SuiteRow& row) {
  Json json{{"id", row.id},
            {"title", row.title},
            {"what", row.what},
            {"kind", kind_name(row.kind)},
            {"criterion", row.criterion},
            {"verdict", row.verdict_text()},
            {"unit", row.unit},
            {"base", optional_number(row.base)},
            {"base_error", number_or_null(row.base_error)},
            {"student", optional_number(row.student)},
            {"student_error", number_or_null(row.student_error)},
            {"loss_unit", row.loss_unit},
            {"loss", number_or_null(row.loss.mean)},
            {"loss_error", number_or_null(row.loss.error)},
            {"loss_low", number_or_null(row.interval.low)},
            {"loss_high", number_or_null(row.interval.high)},
            {"allowed", row.allowed},
            {"samples", row.count},
            {"sample", row.sample},
            {"missing", row.missing ? Json(*row.missing) : Json()}};
  if (!row.note.empty()) {
    json["note"] = row.note;
  }
  if (!row.details.empty()) {
    json["details"] = row.details;
  }
  return json;
}

PairedAnswers compare_answers(const Journal& base, const Journal& student,
                              std::span<const Question> questions) {
  PairedAnswers result;
  Mean of_base;
  Mean of_student;
  Mean loss;
  for (const Question& question : questions) {
    const Json* const record = student.find(question.id);
    result.skipped += record != nullptr && record->contains("skipped") ? 1 : 0;
    const auto a = share_correct(base.find(question.id));
    const auto b = share_correct(record);
    if (!a || !b) {
      continue;
    }
    result.counts.questions += 1.0;
    result.counts.only_base += std::max(0.0, *a - *b);
    result.counts.only_student += std::max(0.0, *b - *a);
    of_base.add(*a);
    of_student.add(*b);
    loss.add(*a - *b);
  }
  result.base = of_base.estimate();
  result.student = of_student.estimate();
  result.loss = loss.estimate();
  return result;
}

void judge_answers(SuiteRow& row, const PairedAnswers& answers, double points) {
  const Interval interval = interval_of(answers.counts);
  row.count = answers.loss.count;
  row.allowed = points;
  row.loss = {100.0 * answers.loss.mean, 100.0 * answers.loss.error, answers.loss.count};
  row.interval = {100.0 * interval.low, 100.0 * interval.high};
  if (row.count == 0) {
    row.note = "No question was answered by both.";
    return;
  }
  row.base = 100.0 * answers.base.mean;
  row.student = 100.0 * answers.student.mean;
  row.base_error = 100.0 * answers.base.error;
  row.student_error = 100.0 * answers.student.error;
  row.details["only_base"] = answers.counts.only_base;
  row.details["only_student"] = answers.counts.only_student;
  row.details["skipped"] = answers.skipped;
  row.verdict = decide(interval, points / 100.0);
  if (row.verdict == Verdict::undecided) {
    row.missing = missing_values(answers.counts, points / 100.0);
  }
  if (answers.base.mean < kLeastBase && row.verdict != Verdict::loses) {
    row.verdict = Verdict::undecided;
    row.missing.reset();
    row.note =
        fmt::format("The base answers {:.0f} % itself: too little to show what compression loses.",
                    100.0 * answers.base.mean);
  }
}

void judge_value(SuiteRow& row, const Estimate& loss, double allowed) {
  row.count = loss.count;
  row.allowed = allowed;
  row.loss = loss;
  row.interval = interval_of(loss);
  row.verdict = decide(row.interval, allowed);
  if (row.verdict == Verdict::undecided) {
    row.missing = missing_values(loss, allowed);
  }
  if (loss.count < 2) {
    row.note = fmt::format("An error takes two {} at least: name a longer text.", row.sample);
  }
}

void judge_ratio(SuiteRow& row, const Estimate& logarithm, double percent) {
  judge_value(row, logarithm, std::log1p(percent / 100.0));
  row.allowed = percent;
  row.loss = {percent_of(logarithm.mean), 100.0 * std::exp(logarithm.mean) * logarithm.error,
              logarithm.count};
  row.interval = {percent_of(row.interval.low), percent_of(row.interval.high)};
}

}  // namespace winnow::eval
