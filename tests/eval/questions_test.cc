#include "eval/questions.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"

namespace winnow::eval {
namespace {

const std::filesystem::path kAskedModel =
    std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/dms-cr8";

class Answers : public ::testing::Test {
 protected:
  void SetUp() override {
    LoadOptions options;
    options.model = kAskedModel.string();
    options.dtype = "fp32";
    options.threads = 1;
    options.deterministic = true;
    model_ = engine::load_model(options);
    tokenizer_ = load_tokenizer(kAskedModel);
  }

  [[nodiscard]] Question question(const std::string& id, const std::string& text,
                                  int max_tokens) const {
    return {.id = id,
            .prompt = tokenizer_->encode(text),
            .max_tokens = max_tokens,
            .stop = {"\n"},
            .facts = {{"expected", "71234"}}};
  }

  static Json grade(const Question& question, const std::string& text) {
    return {{"correct",
             text.find(question.facts.at("expected").get<std::string>()) != std::string::npos}};
  }

  std::unique_ptr<const engine::LoadedModel> model_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(Answers, TellWhatTheCacheDid) {
  const std::vector<Question> questions{
      question("a",
               "The secret code of the Oslo office is 71234.\n\nQuestion: What is the secret code "
               "of the Oslo "
               "office?\nAnswer:",
               20)};
  Journal journal;
  answer_questions(*model_, *tokenizer_, questions, grade, {}, journal);
  const Json& record = *journal.find("a");
  const Json& answer = record.at("answers").at(0);
  EXPECT_EQ(answer.at("correct"), true) << answer;
  const double prompt = record.at("prompt_tokens").get<double>();
  const double tokens = answer.at("tokens").get<double>();
  EXPECT_EQ(prompt, static_cast<double>(questions[0].prompt.size()));
  // Everything is within the window: every query sees all tokens before it.
  EXPECT_DOUBLE_EQ(record.at("prompt_reads").get<double>(), prompt * (prompt + 1) / 2);
  const double fed = tokens - 1;
  EXPECT_DOUBLE_EQ(record.at("kv_reads").get<double>(), fed * prompt + fed * (fed + 1) / 2);
  EXPECT_DOUBLE_EQ(record.at("peak_tokens").get<double>(), prompt + fed);
  EXPECT_EQ(summarize_answers(journal, questions).accuracy.mean, 1.0);
}

TEST_F(Answers, DoNotDependOnTheBatch) {
  std::vector<Question> questions;
  for (int i = 0; i < 7; ++i) {
    questions.push_back(
        question(std::to_string(i), fmt::format("Question: What is {} + 4?\nAnswer:", i), 20));
  }
  Journal one;
  Journal many;
  AnswerOptions options{.batch = 1, .samples = 2, .sampling = {.temperature = 1.0, .seed = 4}};
  answer_questions(*model_, *tokenizer_, questions, grade, options, one);
  options.batch = 5;
  answer_questions(*model_, *tokenizer_, questions, grade, options, many);
  for (const Question& question : questions) {
    EXPECT_EQ(*one.find(question.id), *many.find(question.id));
  }
}

TEST_F(Answers, SkipsWhatDoesNotFit) {
  const int positions = model_->model.spec().max_positions;
  std::vector<Question> questions{question("short", "Two", 4), question("long", "Two", 4)};
  questions[1].prompt.assign(static_cast<std::size_t>(positions - 3), 5);
  Journal journal;
  answer_questions(*model_, *tokenizer_, questions, grade, {}, journal);
  EXPECT_TRUE(journal.find("long")->contains("skipped"));
  const AnswerSummary summary = summarize_answers(journal, questions);
  EXPECT_EQ(summary.questions, 1);
  EXPECT_EQ(summary.skipped, 1);
}

TEST_F(Answers, GoOnWhereTheyWereInterrupted) {
  std::vector<Question> questions;
  for (int i = 0; i < 6; ++i) {
    questions.push_back(question(std::to_string(i), fmt::format("What is {} + 1?", i), 3));
  }
  Journal journal;
  AnswerOptions options{.batch = 2};
  options.on_progress = [](std::int64_t done) { return done < 2; };
  answer_questions(*model_, *tokenizer_, questions, grade, options, journal);
  const std::size_t kept = journal.size();
  EXPECT_GE(kept, 2U);
  EXPECT_LT(kept, 6U);
  std::int64_t graded = 0;
  options.on_progress = {};
  answer_questions(
      *model_, *tokenizer_, questions,
      [&graded](const Question& question, const std::string& text) {
        ++graded;
        return grade(question, text);
      },
      options, journal);
  EXPECT_EQ(static_cast<std::size_t>(graded), 6 - kept);
  EXPECT_EQ(journal.size(), 6U);
}

}  // namespace
}  // namespace winnow::eval
