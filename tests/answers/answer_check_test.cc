#include "answers/answer_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace winnow::answers {
namespace {

struct Pair {
  const char* answer;
  const char* expected;
};

TEST(AnswersAgree, WhenTheyMeanTheSame) {
  const std::vector<Pair> same{
      {"5", "5"},
      {" 5 ", "5."},
      {"5.0", "5"},
      {"$5$", "5"},
      {"\\$5", "5"},
      {"1,234", "1234"},
      {"12,345,678", "12345678"},
      {"-7", "-7"},
      {"−7", "-7"},
      {"0.5", "\\frac{1}{2}"},
      {".5", "1/2"},
      {"\\dfrac{1}{2}", "\\frac{1}{2}"},
      {"\\tfrac12", "\\frac{1}{2}"},
      {"\\frac12", "1/2"},
      {"2/4", "\\frac{1}{2}"},
      {"-\\frac{3}{4}", "-0.75"},
      {"\\frac{-3}{4}", "-\\frac{3}{4}"},
      {"3\\frac{1}{2}", "3.5"},
      {"\\frac{\\sqrt{3}}{2}", "\\frac{\\sqrt3}{2}"},
      {"2\\sqrt{3}", "\\sqrt{12}"},
      {"\\sqrt[3]{8}", "2"},
      {"2\\pi", "2 \\pi"},
      {"\\frac{\\pi}{4}", "\\pi/4"},
      {"2^{10}", "1024"},
      {"2^3 \\cdot 3", "24"},
      {"3 \\times 4", "12"},
      {"6 \\div 4", "1.5"},
      {"50\\%", "50"},
      {"50%", "0.5"},
      {"90^\\circ", "90"},
      {"90^{\\circ}", "90"},
      {"5 \\text{ cm}", "5"},
      {"5\\text{ cm}^2", "5"},
      {"12 dollars", "12"},
      {"12\\mathrm{~kg}", "12"},
      {"x = 5", "5"},
      {"x=-2", "-2"},
      {"\\left(3, \\frac{\\pi}{2}\\right)", "(3,\\frac{\\pi}{2})"},
      {"(0.5, 2)", "(1/2, 2)"},
      {"[0,1)", "[0, 1)"},
      {"(-\\infty, 2]", "(-\\infty,2]"},
      {"\\{1, 2, 3\\}", "\\{3, 2, 1\\}"},
      {"3, 5", "5, 3"},
      {"\\text{Evelyn}", "Evelyn"},
      {"evelyn", "Evelyn"},
      {"p - q", "p-q"},
      {"x^2+2x+1", "x^2 + 2x + 1"},
      {"\\text{(C)}", "(C)"},
      {"(2)(3)", "6"},
      {"10!", "10!"},
  };
  for (const auto& [answer, expected] : same) {
    EXPECT_TRUE(answers_agree(answer, expected)) << answer << " and " << expected;
    EXPECT_TRUE(answers_agree(expected, answer)) << expected << " and " << answer;
  }
}

TEST(AnswersAgree, NotWhenTheyDiffer) {
  const std::vector<Pair> different{
      {"5", "6"},
      {"5", "-5"},
      {"", "5"},
      {"0.33", "\\frac{1}{3}"},
      {"0.3333", "1/3"},
      {"1.234", "1,234"},
      {"\\frac{2}{1}", "\\frac{1}{2}"},
      {"2\\sqrt{2}", "\\sqrt{6}"},
      {"(1,2)", "(2,1)"},
      {"[0,1]", "[0,1)"},
      {"(0,1)", "[0,1)"},
      {"\\{1,2\\}", "\\{1,2,2\\}"},
      {"3", "3, 5"},
      {"3, 5, 7", "3, 5"},
      {"A", "B"},
      {"A", "a"},
      {"x+1", "x-1"},
      {"50", "0.5"},
      {"1/0", "2/0"},
      {"\\frac{1}{", "\\frac{1}{2}"},
      {"((((", "5"},
      {"yes", "no"},
      {"y=5x", "5x+y"},
  };
  for (const auto& [answer, expected] : different) {
    EXPECT_FALSE(answers_agree(answer, expected)) << answer << " and " << expected;
    EXPECT_FALSE(answers_agree(expected, answer)) << expected << " and " << answer;
  }
}

TEST(ValueOf, ReadsExpressions) {
  EXPECT_DOUBLE_EQ(value_of("-(2+3)*4^2").value(), -80.0);
  EXPECT_DOUBLE_EQ(value_of("\\frac{1+\\sqrt{5}}{2}").value(), (1.0 + std::sqrt(5.0)) / 2.0);
  EXPECT_DOUBLE_EQ(value_of("4\\pi").value(), 4.0 * std::numbers::pi);
  EXPECT_DOUBLE_EQ(value_of("25%").value(), 0.25);
  for (const char* other : {"", "x", "1+", "1 2x", "\\frac", "\\frac{1}", "\\sqrt", "(1", "1)",
                            "1/0", "\\sqrt{-1}", "^2", "--", "\\unknown"}) {
    EXPECT_FALSE(value_of(other).has_value()) << other;
  }
}

TEST(ValueOf, DeepNestingIsNotANumber) {
  std::string nested(100000, '(');
  nested.append("1").append(100000, ')');
  EXPECT_FALSE(value_of(nested).has_value());
  EXPECT_FALSE(value_of(std::string(100000, '-').append("x")).has_value());
}

TEST(StatedAnswer, IsWhatASolutionEndsIn) {
  EXPECT_EQ(stated_answer("So \\boxed{3}, no: \\boxed{\\frac{1}{2}}.", false), "\\frac{1}{2}");
  EXPECT_EQ(stated_answer("\\boxed 5 apples", false), "5");
  EXPECT_EQ(stated_answer("\\fbox{7}", false), "7");
  EXPECT_EQ(stated_answer("The final answer is $x+1$. I hope it is correct.", false), "$x+1$");
  EXPECT_EQ(stated_answer("The answer is 2.5.", false), "2.5");
  EXPECT_EQ(stated_answer("The answer is 12 apples and no more.\n13", true), "12");
  EXPECT_EQ(stated_answer("3 + 4 = 7 in all", true), "7");
  EXPECT_EQ(stated_answer("3 + 4 = 7 in all", false), "");
  EXPECT_EQ(stated_answer("\\boxed{3", false), "");
  EXPECT_EQ(stated_answer("", true), "");
}

TEST(MarkedAnswer, IsGsm8ks) {
  EXPECT_EQ(marked_answer("He makes <<9*2=18>>18.\n#### 18"), "18");
  EXPECT_EQ(marked_answer("#### 1,234\nQuestion: 5"), "1234");
  EXPECT_EQ(marked_answer("#### $-5.50"), "-5.50");
  EXPECT_EQ(marked_answer("#### none\n5"), "");
  EXPECT_EQ(marked_answer("18"), "");
}

TEST(LastNumber, TakesSignsDotsAndThousands) {
  EXPECT_EQ(last_number("It is -3."), "-3");
  EXPECT_EQ(last_number("7-3"), "3");
  EXPECT_EQ(last_number("It costs $1,234.50, all in"), "1234.50");
  EXPECT_EQ(last_number("1,2,3"), "3");
  EXPECT_EQ(last_number("version 1.2.3"), "2.3");
  EXPECT_EQ(last_number("none"), "");
  EXPECT_EQ(last_number(""), "");
}

}  // namespace
}  // namespace winnow::answers
