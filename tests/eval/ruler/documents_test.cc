// RULER's questions about documents, from files in the formats of SQuAD and HotpotQA.
#include "eval/ruler/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "eval/ruler/ruler.h"
#include "eval/temp_file.h"

namespace winnow::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using winnow::testing::message_of;
using winnow::testing::TempFile;

std::string paragraph(const std::string& context, const std::string& question,
                      const std::string& rest) {
  return R"({"context": ")" + context + R"(", "qas": [{"id": "1", "question": ")" + question +
         "\"" + rest + "}]}";
}

std::string squad() {
  const auto answer = [](const std::string& text) {
    return R"(, "is_impossible": false, "answers": [{"text": ")" + text +
           R"(", "answer_start": 0}, {"text": "the )" + text + R"(", "answer_start": 0}])";
  };
  return R"({"version": "v2.0", "data": [{"title": "Rivers", "paragraphs": [)" +
         paragraph("The Rhine is long.", "What is long?", answer("Rhine")) + "," +
         paragraph("The Elbe is wide.", "What is blue?",
                   R"(, "is_impossible": true, "answers": [], "plausible_answers": [])") +
         R"(]}, {"title": "Hills", "paragraphs": [)" +
         paragraph("The Brocken is high.", "What is high?", answer("Brocken")) + "]}]}";
}

const char* const kHotpot =
    R"([{"_id": "a", "question": "Who is older?", "answer": "Ann", "type": "comparison",
         "context": [["Ann", ["Ann was born in 1950.", " She sings."]],
                     ["Ben", ["Ben was born in 1960."]]]},
        {"_id": "b", "question": "Does Cid sing?", "answer": "no",
         "context": [["Cid", ["Cid paints."]], ["Ann", ["Ann was born in 1950.", " She sings."]]]}])";

TEST(Documents, OfSquad) {
  const TempFile file(".json");
  file.write(squad());
  const DocumentSet set = read_squad(file.path());
  EXPECT_THAT(set.documents,
              ElementsAre("The Brocken is high.", "The Elbe is wide.", "The Rhine is long."));
  ASSERT_EQ(set.questions.size(), 2U) << "one has no answer";
  EXPECT_EQ(set.questions[0].text, "What is long?");
  EXPECT_THAT(set.questions[0].answers, ElementsAre("Rhine", "the Rhine"));
  EXPECT_THAT(set.questions[0].own, ElementsAre(2U));
  EXPECT_THAT(set.questions[0].related, ElementsAre(2U, 1U));
}

TEST(Documents, OfHotpot) {
  const TempFile file(".json");
  file.write(kHotpot);
  const DocumentSet set = read_hotpot(file.path());
  EXPECT_THAT(set.documents, ElementsAre("Ann\nAnn was born in 1950. She sings.",
                                         "Ben\nBen was born in 1960.", "Cid\nCid paints."));
  ASSERT_EQ(set.questions.size(), 2U);
  EXPECT_THAT(set.questions[1].answers, ElementsAre("no"));
  EXPECT_THAT(set.questions[1].own, ElementsAre(2U, 0U));
}

TEST(Documents, ErrorsNameFileAndKey) {
  const TempFile file(".json");
  const auto error = [&file](DocumentSet (*read)(const std::filesystem::path&),
                             const std::string& text) {
    file.write(text);
    const std::string message = message_of([&] { static_cast<void>(read(file.path())); });
    EXPECT_THAT(message, HasSubstr(file.path().string()));
    return message;
  };
  EXPECT_THAT(error(read_squad, "{"), HasSubstr(".json"));
  EXPECT_THAT(error(read_squad, "[]"), HasSubstr("object"));
  EXPECT_THAT(error(read_squad, R"({"data": []})"), HasSubstr("no question with an answer"));
  EXPECT_THAT(error(read_squad, R"({"data": [{"paragraphs": 3}]})"),
              HasSubstr("data[0]: paragraphs"));
  EXPECT_THAT(error(read_squad, R"({"data": [{"paragraphs": [{"context": "x", "qas": [{}]}]}]})"),
              HasSubstr("paragraphs[0]: qas[0]: answers"));
  EXPECT_THAT(error(read_hotpot, "{}"), HasSubstr("expected a list of questions"));
  EXPECT_THAT(
      error(read_hotpot, R"([{"question": "q", "answer": "a", "context": [["Ann", "x"]]}])"),
      HasSubstr("[0]: context[0]: expected a title and a list of sentences"));
  EXPECT_THAT(error(read_hotpot, R"([{"question": "q", "answer": "a", "context": []}])"),
              HasSubstr("at least one document"));
}

TEST(Documents, PromptsHoldThoseOfTheQuestion) {
  const TempFile squad_file(".squad.json");
  squad_file.write(squad());
  const TempFile hotpot_file(".hotpot.json");
  hotpot_file.write(kHotpot);
  const auto tokenizer = load_tokenizer(std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/base");
  const RulerSource source{.essays = {*tokenizer, "One sentence."},
                           .vocabulary = Vocabulary(""),
                           .squad = read_squad(squad_file.path()),
                           .hotpot = read_hotpot(hotpot_file.path())};
  const EncodeBegun encode = [&](const std::string& text, const std::string& answer) {
    return tokenizer->encode(text + answer);
  };
  const auto questions = make_ruler(
      source, encode, {.lengths = {250, 600}, .tasks = {"qa_1", "qa_2"}, .samples = 2, .seed = 1});
  ASSERT_EQ(questions.size(), 8U);
  for (const Question& question : questions) {
    const std::string text = tokenizer->decode(question.prompt, /*skip_special=*/true);
    const int length = question.facts.at("length").get<int>();
    EXPECT_LE(static_cast<int>(question.prompt.size()) + 32, length);
    EXPECT_GE(static_cast<int>(question.prompt.size()) + 32, length - 40);
    EXPECT_THAT(text, HasSubstr("\n\nDocument 2:\n"));
    EXPECT_THAT(text, EndsWith("? Answer:"));
    const bool squad_task = question.facts.at("task") == "qa_1";
    const DocumentSet& set = squad_task ? *source.squad : *source.hotpot;
    const std::size_t index = question.id.back() == '0' ? 0 : 1;
    EXPECT_THAT(text, HasSubstr("Question: " + set.questions[index].text));
    for (const std::size_t own : set.questions[index].own) {
      EXPECT_THAT(text, HasSubstr(":\n" + set.documents[own] + "\n\n"));
    }
  }
  EXPECT_THAT(message_of([&] {
                static_cast<void>(make_ruler(source, encode,
                                             {.lengths = {600}, .tasks = {"qa_1"}, .samples = 3}));
              }),
              HasSubstr("has 2 questions"));
}

}  // namespace
}  // namespace winnow::eval
