#include "eval/suite/conclusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Kind = SuiteRow::Kind;

SuiteRow row(const std::string& title, Verdict verdict, Kind kind = Kind::quality) {
  return {.title = title, .kind = kind, .verdict = verdict};
}

TEST(Conclude, YesOnlyWhereAllRowsHold) {
  const std::vector<SuiteRow> rows{row("Needles", Verdict::holds),
                                   row("Sessions", Verdict::holds, Kind::exactness)};
  const Conclusion yes = conclude(rows, 8.04);
  EXPECT_EQ(yes.verdict, Verdict::holds);
  EXPECT_EQ(
      yes.sentence,
      "Yes: at a measured compression ratio of 8.0 the student holds in all 2 rows of quality.");
}

TEST(Conclude, OneOpenRowLeavesItOpen) {
  const std::vector<SuiteRow> rows{row("Needles", Verdict::holds), row("KLD", Verdict::undecided)};
  const Conclusion open = conclude(rows, 8.0);
  EXPECT_EQ(open.verdict, Verdict::undecided);
  EXPECT_THAT(open.sentence, HasSubstr("1 row holds, 1 is not decided (KLD)"));
}

TEST(Conclude, OneLostRowIsANo) {
  const std::vector<SuiteRow> rows{row("Needles", Verdict::loses), row("KLD", Verdict::undecided),
                                   row("Text", Verdict::holds)};
  const Conclusion no = conclude(rows, 8.0);
  EXPECT_EQ(no.verdict, Verdict::loses);
  EXPECT_THAT(no.sentence, StartsWith("No, not for everything"));
  EXPECT_THAT(no.sentence,
              HasSubstr("in 1 of 3 rows of quality (needles); 1 row holds, 1 is not decided."));
}

TEST(Conclude, CostIsSaidAndDecidesNothing) {
  const std::vector<SuiteRow> rows{row("Needles", Verdict::holds),
                                   row("Decode speed", Verdict::loses, Kind::cost)};
  const Conclusion dearer = conclude(rows, 2.0);
  EXPECT_EQ(dearer.verdict, Verdict::holds);
  EXPECT_THAT(dearer.sentence, HasSubstr("It costs more: decode speed."));
  EXPECT_THAT(dearer.sentence, Not(HasSubstr("not decided")));
  const Conclusion nothing = conclude(std::span(rows).last(1), 2.0);
  EXPECT_EQ(nothing.verdict, Verdict::undecided);
  EXPECT_THAT(nothing.sentence, HasSubstr("nothing that the student says was measured"));
  EXPECT_THAT(conclude(std::span(rows).first(1), 2.0).sentence, Not(HasSubstr("costs")));
  const std::vector<SuiteRow> open{rows[0], row("Decode speed", Verdict::undecided, Kind::cost)};
  EXPECT_THAT(conclude(open, 2.0).sentence,
              HasSubstr("Whether it costs more is not decided: decode speed."));
}

}  // namespace
}  // namespace winnow::eval
