#include "eval/suite/row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;

// Questions 0, 1, ..., and a journal with correct answers to those in `right`.
std::vector<Question> numbered(int count) {
  std::vector<Question> questions;
  for (int i = 0; i < count; ++i) {
    questions.emplace_back().id = std::to_string(i);
  }
  return questions;
}

Journal answered(int count, const std::function<bool(int)>& right) {
  Journal journal;
  for (int i = 0; i < count; ++i) {
    journal.add(std::to_string(i), {{"answers", {{{"correct", right(i)}}}}});
  }
  return journal;
}

TEST(CompareAnswers, PairsThemByQuestion) {
  const auto questions = numbered(10);
  const Journal base = answered(10, [](int i) { return i < 8; });
  Journal student = answered(9, [](int i) { return i >= 2; });
  student.add("9", {{"skipped", "too long"}});
  const PairedAnswers answers = compare_answers(base, student, questions);
  EXPECT_EQ(answers.counts.questions, 9.0);
  EXPECT_EQ(answers.counts.only_base, 2.0);
  EXPECT_EQ(answers.counts.only_student, 1.0);
  EXPECT_EQ(answers.skipped, 1);
  EXPECT_DOUBLE_EQ(answers.base.mean, 8.0 / 9.0);
  EXPECT_DOUBLE_EQ(answers.student.mean, 7.0 / 9.0);
  EXPECT_DOUBLE_EQ(answers.loss.mean, 1.0 / 9.0);
  // The differences are 1, 1, -1 and six times 0.
  const double squares = 3.0 - 9.0 * (1.0 / 9.0) * (1.0 / 9.0);
  EXPECT_DOUBLE_EQ(answers.loss.error, std::sqrt(squares / 8.0 / 9.0));
}

SuiteRow judged(int count, const std::function<bool(int)>& base,
                const std::function<bool(int)>& student) {
  SuiteRow row;
  judge_answers(
      row, compare_answers(answered(count, base), answered(count, student), numbered(count)), 1.0);
  return row;
}

const auto kRight = [](int) { return true; };

TEST(JudgeAnswers, HoldsOnlyWhereTheSampleExcludesTheLoss) {
  EXPECT_EQ(judged(300, kRight, kRight).verdict, Verdict::holds);
  const SuiteRow few = judged(30, kRight, kRight);
  EXPECT_EQ(few.verdict, Verdict::undecided);
  EXPECT_EQ(few.missing, 238);
  EXPECT_EQ(few.verdict_text(), "not decided: needs about 238 more questions");
  const SuiteRow lost = judged(300, kRight, [](int i) { return i % 10 != 0; });
  EXPECT_EQ(lost.verdict, Verdict::loses);
  EXPECT_NEAR(lost.loss.mean, 10.0, 1e-9);
  EXPECT_NEAR(lost.difference(), -10.0, 1e-9);
  EXPECT_NEAR(lost.student_error, 100.0 * std::sqrt(0.9 * 0.1 / 299.0), 1e-9);
  EXPECT_GT(lost.interval.low, 1.0);
}

TEST(JudgeAnswers, ABaseThatKnowsNothingShowsNothing) {
  const auto never = [](int) { return false; };
  const SuiteRow row = judged(1000, never, never);
  EXPECT_EQ(row.verdict, Verdict::undecided);
  EXPECT_EQ(row.missing, std::nullopt);
  EXPECT_THAT(row.note, HasSubstr("The base answers 0 % itself"));
  EXPECT_EQ(judged(0, never, never).verdict, Verdict::undecided);
}

TEST(JudgeValue, ComparesTheBoundsWithWhatIsAllowed) {
  SuiteRow row;
  judge_value(row, {.mean = 0.01, .error = 0.001, .count = 20}, 0.02);
  EXPECT_EQ(row.verdict, Verdict::holds);
  judge_value(row, {.mean = 0.03, .error = 0.001, .count = 20}, 0.02);
  EXPECT_EQ(row.verdict, Verdict::loses);
  judge_value(row, {.mean = 0.01, .error = 0.02, .count = 20}, 0.02);
  EXPECT_EQ(row.verdict, Verdict::undecided);
  EXPECT_GT(row.missing, 0);
}

TEST(JudgeRatio, SpeaksInPerCent) {
  SuiteRow row;
  judge_ratio(row, {.mean = std::log(1.02), .error = 0.001, .count = 1000}, 0.5);
  EXPECT_NEAR(row.loss.mean, 2.0, 1e-9);
  EXPECT_NEAR(row.loss.error, 0.102, 1e-6);
  EXPECT_NEAR(row.interval.high, 100.0 * (1.02 * std::exp(0.001645) - 1.0), 1e-3);
  EXPECT_EQ(row.allowed, 0.5);
  EXPECT_EQ(row.verdict, Verdict::loses);
  judge_ratio(row, {.mean = std::log(1.002), .error = 0.001, .count = 1000}, 0.5);
  EXPECT_EQ(row.verdict, Verdict::holds);
  // One window is not enough for an interval, and JSON has no infinity.
  judge_ratio(row, {.mean = 0.0, .count = 1}, 0.5);
  EXPECT_EQ(row.verdict, Verdict::undecided);
  EXPECT_THAT(row.note, HasSubstr("two questions at least"));
  EXPECT_TRUE(to_json(row).at("loss_high").is_null());
  EXPECT_TRUE(to_json(row).at("loss_error").is_null());
}

TEST(VerdictText, OfSessionsIsPassOrFail) {
  SuiteRow row{.kind = SuiteRow::Kind::exactness, .verdict = Verdict::holds};
  EXPECT_EQ(row.verdict_text(), "passes");
  row.verdict = Verdict::loses;
  EXPECT_EQ(row.verdict_text(), "fails");
  SuiteRow one{.verdict = Verdict::undecided, .missing = 1};
  EXPECT_EQ(one.verdict_text(), "not decided: needs about 1 more question");
}

}  // namespace
}  // namespace winnow::eval
