#include "eval/suite/transcript.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "eval/suite/dialogue_fixture.h"
#include "eval/suite/tool_results.h"

namespace winnow::eval {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

std::string value(const Question& question) {
  return question.facts.at("values").at(0).get<std::string>();
}

class Transcripts : public Dialogue {};

TEST_F(Transcripts, AreAsLongAsAskedAndTheValueAsFarBack) {
  const TranscriptOptions options{.length = 2000, .distances = {0.1, 0.5, 0.9}, .repeats = 6};
  const auto questions = make_transcripts(chat(), options);
  ASSERT_EQ(questions.size(), 18U);
  double before = 0.0;
  for (const Question& question : questions) {
    const auto size = static_cast<double>(question.prompt.size());
    EXPECT_LE(size + question.max_tokens, 2000.0);
    EXPECT_GT(size, 1600.0);
    const auto distance = question.facts.at("distance").get<double>();
    EXPECT_LT(distance, size);
    before = std::max(before, distance);
  }
  EXPECT_GT(before, 1000.0);
  const auto share_of = [&](std::size_t i) {
    return questions[i].facts.at("distance").get<double>() /
           static_cast<double>(questions[i].prompt.size());
  };
  for (std::size_t i = 0; i < 6; ++i) {  // steps, not tokens, are shared out
    EXPECT_LT(share_of(i), share_of(6 + i)) << questions[i].id;
    EXPECT_LT(share_of(6 + i), share_of(12 + i)) << questions[i].id;
  }
  EXPECT_THROW((void)make_transcripts(chat(), {.length = 300}), Error);
}

TEST_F(Transcripts, DependOnTheSeedAlone) {
  const TranscriptOptions options{.length = 1500, .distances = {0.5}, .repeats = 4};
  const auto questions = make_transcripts(chat(), options);
  EXPECT_EQ(make_transcripts(chat(), options)[3].prompt, questions[3].prompt);
  TranscriptOptions other = options;
  other.seed = 2;
  EXPECT_NE(make_transcripts(chat(), other)[3].prompt, questions[3].prompt);
}

TEST_F(Transcripts, EndInACallThatNeedsAValueOfOneResult) {
  const TranscriptOptions options{.length = 3000, .distances = {0.2, 0.8}, .repeats = 9};
  for (const DialogueForm& form : {plain(), chat()}) {
    std::vector<std::string> tools;
    std::size_t given = 0;
    for (const Question& question : make_transcripts(form, options)) {
      const std::string text = text_of(question);
      SCOPED_TRACE(question.id);
      EXPECT_THAT(text, HasSubstr("\"name\":\"job_status\""));  // the tools are defined
      tools.push_back(question.facts.at("tool").get<std::string>());
      EXPECT_EQ(times_in(text, value(question)), 1U);
      // The call's arguments are, up to the value, the result's first members.
      const std::string call = text.substr(text.rfind("{\"tool\":"));
      const std::string arguments = call.substr(call.find("{\"service\":"));
      EXPECT_THAT(text,
                  HasSubstr("Result of " + tools.back() + ":\n" + arguments + value(question)));
      EXPECT_EQ(times_in(text, "\"tool\":\"" + tools.back() + "\",\"arguments\":" +
                                   arguments.substr(0, arguments.find(',')) + "}}"),
                1U);
      for (const char* const other : {"job_id", "path", "port"}) {
        given += times_in(text, fmt::format("\",\"{}\":", other));
      }
    }
    EXPECT_GT(given, 3 * tools.size());  // other calls give and need values, too
    for (const char* const tool : {"start_backup", "deploy", "open_debugger"}) {
      EXPECT_EQ(std::ranges::count(tools, tool), 6) << tool;
    }
  }
}

TEST_F(Transcripts, EndInAQuestionThatOneNoteAnswers) {
  const TranscriptOptions options{
      .end = TranscriptEnd::question, .length = 3000, .distances = {0.2, 0.8}, .repeats = 10};
  for (const DialogueForm& form : {plain(), chat()}) {
    for (const Question& question : make_transcripts(form, options)) {
      const std::string text = text_of(question);
      SCOPED_TRACE(question.id);
      EXPECT_THAT(text, AnyOf(EndsWith("?\nAssistant:"), EndsWith("?<|assistant|>")));
      EXPECT_EQ(question.facts.at("tool"), "read_note");
      EXPECT_EQ(question.stop, form.stop);
      EXPECT_TRUE(grade_transcript(question, text).at("correct"));
      // No note of the same kind: what the question ends in is in one note.
      const std::size_t asked = text.rfind("What shall I do next?");
      EXPECT_LT(text.rfind(value(question), asked), asked);
    }
  }
}

TEST_F(Transcripts, TokensOfAValueAreTheSameAfterTheOpening) {
  Random random(3);
  for (int i = 0; i < 30; ++i) {
    const Errand errand = make_call(i, random);
    EXPECT_EQ(call_text(errand.needs).substr(0, errand.opening.size()), errand.opening);
    const auto opening = tokenizer_->encode(errand.opening, {.add_special = false});
    auto whole = tokenizer_->encode(errand.opening + errand.values.front(), {.add_special = false});
    whole.resize(opening.size());
    EXPECT_EQ(whole, opening) << errand.opening;
  }
}

TEST_F(Transcripts, TemplatesWithoutASystemRoleGetTheToolsFromTheUser) {
  const DialogueForm strict{.encode =
                                [form = plain()](std::span<const ChatMessage> messages) {
                                  require(messages.front().role != "system", "no system role");
                                  for (std::size_t i = 0; i < messages.size(); ++i) {
                                    require(messages[i].role == (i % 2 == 0 ? "user" : "assistant"),
                                            "roles alternate");
                                  }
                                  return form.encode(messages);
                                },
                            .stop = {}};
  const TranscriptOptions options{.length = 1500, .distances = {0.5}, .repeats = 1};
  EXPECT_THAT(text_of(make_transcripts(strict, options).front()),
              AllOf(Not(HasSubstr("System:")), HasSubstr("User: You look after servers.")));
  EXPECT_THAT(text_of(make_transcripts(plain(), options).front()),
              HasSubstr("System: You look after servers."));
}

TEST(TranscriptGrade, TakesTheExactValueAlone) {
  Question question;
  question.facts = {{"tool", "open_debugger"}, {"values", Json::array({"48213"})}};
  const auto correct = [&](const std::string& text) {
    return grade_transcript(question, text).at("correct").get<bool>();
  };
  for (const char* const right : {"48213", "48213\"}}", "48213}}", " 48213,", "48213\nUser:"}) {
    EXPECT_TRUE(correct(right)) << right;
  }
  for (const char* const wrong : {"", "4821", "482133", "48214", "the port 48213", "\"48213"}) {
    EXPECT_FALSE(correct(wrong)) << wrong;
  }
}

TEST(TranscriptGrade, TakesAnAnswerThatHasAllValuesOfANote) {
  Question question;
  question.facts = {{"tool", "read_note"}, {"values", Json::array({"Monday", "204"})}};
  EXPECT_EQ(grade_transcript(question, "It is on Monday, room 204.").at("correct"), true);
  EXPECT_EQ(grade_transcript(question, "It is on Monday, room 2045.").at("correct"), false);
}

TEST_F(Transcripts, AccuracyByDistance) {
  const TranscriptOptions options{.length = 1500, .distances = {0.1, 0.9}, .repeats = 2};
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
