// The facts hidden in haystacks, and how graders judge answers.
#include "eval/haystack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "eval/facts.h"
#include "eval/needle.h"
#include "eval/variables.h"

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kModel = std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/base";

TEST(Hide, PutsSentencesBehindSentences) {
  const std::string hay = "One two three. Four five six. Seven eight nine.";
  const auto hidden_at = [&hay](double depth) {
    const Hidden hidden{"HERE.", depth};
    return hide(hay, std::span(&hidden, 1));
  };
  EXPECT_EQ(hidden_at(0.0), "HERE. " + hay);
  EXPECT_EQ(hidden_at(0.1), "One two three. HERE. Four five six. Seven eight nine.");
  EXPECT_EQ(hidden_at(0.5), "One two three. Four five six. HERE. Seven eight nine.");
  EXPECT_EQ(hidden_at(1.0), hay + " HERE.");
  const std::vector<Hidden> two{{"B.", 0.6}, {"A.", 0.1}};
  EXPECT_EQ(hide(hay, two), "One two three. A. Four five six. B. Seven eight nine.");
}

class Hay : public ::testing::Test {
 protected:
  std::unique_ptr<const Tokenizer> tokenizer_ = load_tokenizer(kModel);
  EncodePrompt encode_ = [this](const std::string& text) { return tokenizer_->encode(text); };
  std::string text_ = [] {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += "The road goes on past house number " + std::to_string(i) + ", and then it ends. ";
    }
    return text;
  }();
};

TEST_F(Hay, PromptsAreAsLongAsAskedFor) {
  const Haystack hay(*tokenizer_, text_);
  Random random(5);
  for (const int length : {60, 100, 333, 1000, 4000, 20000}) {  // the hay is shorter than the last
    const Hidden hidden{"The secret code of the Oslo office is 12345.", 0.4};
    const auto prompt =
        hay.prompt(length, std::span(&hidden, 1), "\n\nQuestion: ?", encode_, random);
    EXPECT_LE(static_cast<int>(prompt.size()), length);
    EXPECT_GE(static_cast<int>(prompt.size()), length - 16);
    const std::string back = tokenizer_->decode(prompt, true);
    EXPECT_THAT(back, HasSubstr(hidden.sentence));
    EXPECT_TRUE(back.ends_with("\n\nQuestion: ?"));
  }
}

TEST_F(Hay, NeedsRoom) {
  const Haystack hay(*tokenizer_, text_);
  Random random(5);
  const Hidden hidden{"The secret code of the Oslo office is 12345.", 0.4};
  EXPECT_THROW(
      static_cast<void>(hay.prompt(10, std::span(&hidden, 1), "\n\nQuestion: ?", encode_, random)),
      Error);
  EXPECT_THROW(Haystack(*tokenizer_, " \n "), Error);
}

TEST_F(Hay, NeedlesLieAtTheirDepths) {
  const Haystack hay(*tokenizer_, text_);
  const NeedleOptions options{
      .lengths = {400, 800}, .depths = {0.0, 0.5, 1.0}, .repeats = 5, .max_tokens = 20};
  const auto needles = make_needles(hay, encode_, options);
  ASSERT_EQ(needles.size(), 30U);
  for (const Question& needle : needles) {
    const std::string text = tokenizer_->decode(needle.prompt, true);
    const auto at = static_cast<double>(text.find(needle.facts.at("expected").get<std::string>()));
    const double depth = at / static_cast<double>(text.rfind("\n\nQuestion: "));
    EXPECT_NEAR(depth, needle.facts.at("depth").get<double>(), 0.16) << needle.id;
    EXPECT_LE(static_cast<int>(needle.prompt.size()) + 20, needle.facts.at("length").get<int>());
  }
  // A question does not depend on the other ones that are made.
  const auto one =
      make_needles(hay, encode_, {.lengths = {800}, .depths = {0.5}, .max_tokens = 20});
  EXPECT_EQ(one.front().prompt, needles[20].prompt);
  EXPECT_EQ(one.front().id, needles[20].id);
}

TEST(GradeNeedle, WantsEveryValueWordForWord) {
  Question question;
  question.facts = {{"expected", "The meeting with Leo is on Monday in room 123."},
                    {"values", {"Monday", "123"}}};
  const auto grade = [&question](const std::string& text) {
    const Json json = grade_needle(question, text);
    return std::pair(json.at("correct").get<bool>(), json.at("exact").get<bool>());
  };
  EXPECT_EQ(grade(" The meeting with Leo is on Monday in room 123."), std::pair(true, true));
  EXPECT_EQ(grade("\nIn room 123, on Monday!"), std::pair(true, false));
  EXPECT_EQ(grade("On Monday in room 1234."), std::pair(false, false));
  EXPECT_EQ(grade("In room 123."), std::pair(false, false));
  EXPECT_EQ(grade(""), std::pair(false, false));
}

TEST_F(Hay, ChainsAreThereInOrder) {
  const Haystack hay(*tokenizer_, text_);
  for (const std::string style : {"ruler", "plain"}) {
    const auto texts = make_variables(
        hay, encode_,
        {.lengths = {900}, .chains = 3, .hops = 3, .repeats = 3, .max_tokens = 60, .style = style});
    ASSERT_EQ(texts.size(), 3U);
    for (const Question& question : texts) {
      const std::string text = tokenizer_->decode(question.prompt, true);
      const std::string link = style == "ruler" ? " = VAR " : " is a copy of variable ";
      std::size_t links = 0;
      for (std::size_t at = text.find(link); at != std::string::npos;
           at = text.find(link, at + 1)) {
        ++links;
      }
      EXPECT_EQ(links, 9U);
      EXPECT_EQ(question.facts.at("values").size(), style == "ruler" ? 4U : 1U);
    }
  }
}

TEST(GradeVariables, CountsNamesOrReadsTheNumber) {
  Question ruler;
  ruler.facts = {{"style", "ruler"}, {"values", {"ABCDE", "FGHIJ"}}};
  EXPECT_EQ(grade_variables(ruler, " ABCDE, FGHIJ").at("correct"), true);
  EXPECT_EQ(grade_variables(ruler, " ABCDE and XFGHIJ").at("found"), 0.5);
  EXPECT_EQ(grade_variables(ruler, " ABCDE and XFGHIJ").at("correct"), false);

  Question plain;
  plain.facts = {{"style", "plain"}, {"values", {"482"}}};
  for (const char* right : {"Variable A is set to 482. The answer is 482.", "482", "= 482, I think",
                            "First 111. The answer is 482. Then 999."}) {
    EXPECT_EQ(grade_variables(plain, right).at("correct"), true) << right;
  }
  for (const char* wrong : {"The answer is 4825.", "", "none", "482 or 483", "The answer is"}) {
    EXPECT_EQ(grade_variables(plain, wrong).at("correct"), false) << wrong;
  }
}

}  // namespace
}  // namespace winnow::eval
