#include "eval/hyperscale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace winnow::eval {
namespace {

using ::testing::ElementsAre;

Json answers(const std::vector<const char*>& stated, const char* right) {
  Json list = Json::array();
  for (const char* one : stated) {
    list.push_back({{"stated", one}, {"finish", "stop"}, {"correct", std::string(one) == right}});
  }
  return list;
}

TEST(Majority, TakesEquivalentAnswersAsOne) {
  EXPECT_THAT(majority(answers({"1/2", "3", "0.5", "3", "\\frac{1}{2}"}, "")),
              ElementsAre(0, 2, 4));
  EXPECT_THAT(majority(answers({"", "7", ""}, "")), ElementsAre(1));
  EXPECT_THAT(majority(answers({"7", "8"}, "")), ElementsAre(0));  // in a tie, the first
  EXPECT_TRUE(majority(answers({"", ""}, "")).empty());
}

TEST(Majority, HearsOfAChainThatWasCutOffOnlyWhatItSaysIsItsAnswer) {
  const auto cut = [](const char* text, const char* stated) {
    return Json{{"text", text}, {"finish", "length"}, {"stated", stated}, {"correct", false}};
  };
  Json list = answers({"7"}, "7");
  list.push_back(cut("4+4+0=08, 5", "5"));
  list.push_back(cut("so it is 5", "5"));
  EXPECT_THAT(majority(list), ElementsAre(0));
  list.push_back(cut("The answer is 5. And", "5"));
  list.push_back(cut("#### 5\nQuestion 6", "5"));
  EXPECT_THAT(majority(list), ElementsAre(3, 4));
}

TEST(SolvedTogether, ByVoteOrByAnyProgram) {
  const Json math{{"task", "math"}, {"answers", answers({"5", "6", "6", "5", "5", ""}, "5")}};
  EXPECT_TRUE(solved_together(math, 0, 1));
  EXPECT_FALSE(solved_together(math, 0, 3));
  EXPECT_TRUE(solved_together(math, 3, 3));
  EXPECT_TRUE(solved_together(math, 0, 6));
  EXPECT_FALSE(solved_together(math, 5, 1));
  const Json code{{"task", "humaneval"},
                  {"answers", {{{"correct", false}}, {{"correct", false}}, {{"correct", true}}}}};
  EXPECT_FALSE(solved_together(code, 0, 2));
  EXPECT_TRUE(solved_together(code, 0, 3));
}

TEST(SummarizeScaling, AveragesGroupsOfChains) {
  Question question{.id = "a", .prompt = {1, 2, 3}, .stop = {}};
  const auto at_100 = at_length(std::span(&question, 1), 100);
  EXPECT_EQ(at_100.front().id, "100/a");
  EXPECT_EQ(at_100.front().max_tokens, 97);
  Journal journal;
  journal.add("100/a", {{"task", "math"},
                        {"fits", true},
                        {"answers", answers({"5", "6", "5", "5"}, "5")},
                        {"compression_ratio", 2.0},
                        {"by_width",
                         {{"1", {{"kv_reads", 10.0}, {"peak_tokens", 4.0}}},
                          {"2", {{"kv_reads", 20.0}, {"peak_tokens", 7.0}}}}}});
  const std::vector<int> widths{1, 2};
  const auto points = summarize_scaling(journal, at_100, 100, widths);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_DOUBLE_EQ(points[0].accuracy.mean, 0.75);
  EXPECT_DOUBLE_EQ(points[1].accuracy.mean, 1.0);  // first 5 before 6, then 5 twice
  EXPECT_DOUBLE_EQ(points[1].kv_reads, 20.0);
  EXPECT_DOUBLE_EQ(points[1].peak_tokens, 7.0);
  const auto at_2 = at_length(std::span(&question, 1), 2);
  journal.add("2/a", {{"fits", at_2.front().facts.at("fits")}});
  EXPECT_EQ(summarize_scaling(journal, at_2, 2, widths)[0].skipped, 1);
}

std::vector<std::pair<double, double>> pairs(const std::vector<BudgetPoint>& points) {
  std::vector<std::pair<double, double>> result;
  for (const BudgetPoint& point : points) {
    result.emplace_back(point.budget, point.accuracy);
  }
  return result;
}

TEST(ParetoFrontier, KeepsWhatNothingCheaperEquals) {
  using Pairs = std::vector<std::pair<double, double>>;
  EXPECT_EQ(pairs(pareto_frontier({{4, 0.5}, {1, 0.2}, {2, 0.1}, {3, 0.5}, {3, 0.4}, {9, 0.9}})),
            (Pairs{{1, 0.2}, {3, 0.5}, {9, 0.9}}));
  EXPECT_TRUE(pareto_frontier({}).empty());
}

TEST(FrontierMargin, IsTheMeanDifferenceOverCommonBudgets) {
  const std::vector<BudgetPoint> a{{0, 0.5}, {10, 0.7}};
  const std::vector<BudgetPoint> b{{5, 0.2}, {20, 0.5}};
  // On budgets 5 to 10: a rises from 0.6 to 0.7, b from 0.2 to 0.3.
  EXPECT_NEAR(frontier_margin(a, b), 0.4, 1e-12);
  EXPECT_NEAR(frontier_margin(b, a), -0.4, 1e-12);
  // A kink: a is 0 at 0, and 1 at 1 and 2; b is 0: the mean is (0.5 + 1) / 2.
  const std::vector<BudgetPoint> kink{{0, 0.0}, {1, 1.0}, {2, 1.0}};
  const std::vector<BudgetPoint> zero{{0, 0.0}, {2, 0.0}};
  EXPECT_NEAR(frontier_margin(kink, zero), 0.75, 1e-12);
  EXPECT_TRUE(std::isnan(frontier_margin(a, std::vector<BudgetPoint>{{10, 0.1}, {20, 0.2}})));
  EXPECT_TRUE(std::isnan(frontier_margin(a, {})));
}

}  // namespace
}  // namespace winnow::eval
