#include "eval/suite/transcript.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "eval/suite/dialogue_fixture.h"

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;

class Transcripts : public Dialogue {};

TEST_F(Transcripts, AreAsLongAsAskedAndTheFactAsFarBack) {
  const TranscriptOptions options{.length = 1500, .distances = {0.1, 0.5, 0.9}, .repeats = 4};
  const auto questions = make_transcripts(chat(), options);
  ASSERT_EQ(questions.size(), 12U);
  double before = 0.0;
  for (const Question& question : questions) {
    const auto size = static_cast<double>(question.prompt.size());
    EXPECT_LE(size + question.max_tokens, 1500.0);
    EXPECT_GT(size, 1100.0);
    const auto distance = question.facts.at("distance").get<double>();
    EXPECT_NEAR(distance / size, question.facts.at("share").get<double>(), 0.2) << question.id;
    const std::string text = text_of(question);
    EXPECT_THAT(text, HasSubstr(question.facts.at("expected").get<std::string>()));
    EXPECT_THAT(text, HasSubstr("\"tool\":\"read_note\""));
    before = std::max(before, distance);
  }
  EXPECT_GT(before, 1000.0);
  EXPECT_EQ(make_transcripts(chat(), options)[7].prompt, questions[7].prompt);
  EXPECT_NE(
      make_transcripts(chat(), {.length = 1500, .distances = {0.5}, .repeats = 4, .seed = 2})[3]
          .prompt,
      questions[7].prompt);
  EXPECT_THROW((void)make_transcripts(chat(), {.length = 200}), Error);
}

TEST_F(Transcripts, AccuracyByDistance) {
  const TranscriptOptions options{.length = 1200, .distances = {0.1, 0.9}, .repeats = 2};
  const auto questions = make_transcripts(plain(), options);
  Journal journal;
  for (const Question& question : questions) {
    const bool near = question.facts.at("share").get<double>() < 0.5;
    journal.add(question.id, {{"answers", {{{"correct", near}}}}});
  }
  const auto points = by_distance(journal, questions, options.distances);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].accuracy.mean, 1.0);
  EXPECT_EQ(points[1].accuracy.mean, 0.0);
  EXPECT_LT(points[0].tokens, points[1].tokens);
}

}  // namespace
}  // namespace winnow::eval
