// RULER's prompts: their contents, and the scores of answers.
#include "eval/ruler/ruler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"

namespace winnow::eval {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::filesystem::path kRulerModel = std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/base";

std::string road() {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += "The road goes on past house number " + std::to_string(i) + ", and then it ends. ";
  }
  return text;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

std::vector<std::string> answers_of(const Question& question) {
  return question.facts.at("answers").get<std::vector<std::string>>();
}

class Ruler : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<Question> make(const std::string& task, int length,
                                           int samples = 3) const {
    return make_ruler(source_, encode_,
                      {.lengths = {length}, .tasks = {task}, .samples = samples, .seed = 7});
  }
  [[nodiscard]] std::string text(const Question& question) const {
    return tokenizer_->decode(question.prompt, /*skip_special=*/true);
  }
  // The text of a sample between `begin` and `end`.
  [[nodiscard]] static std::string between(const std::string& text, const std::string& begin,
                                           const std::string& end) {
    const std::size_t from = text.rfind(begin);
    EXPECT_NE(from, std::string::npos) << begin;
    const std::size_t start = from + begin.size();
    return text.substr(start, text.find(end, start) - start);
  }

  std::unique_ptr<const Tokenizer> tokenizer_ = load_tokenizer(kRulerModel);
  EncodeBegun encode_ = [this](const std::string& text, const std::string& answer) {
    return tokenizer_->encode(text + answer);
  };
  RulerSource source_{
      .essays = {*tokenizer_, road()}, .vocabulary = Vocabulary(road()), .squad = {}, .hotpot = {}};
};

TEST_F(Ruler, PromptsFillTheirLengths) {
  // The most tokens that one more line, or another word with its repeats, takes.
  constexpr int kGrain = 130;
  for (const RulerTask& task : ruler_tasks().first(11)) {
    for (const int length : {1500, 8192}) {
      for (const Question& question : make(task.name, length)) {
        const auto tokens = static_cast<int>(question.prompt.size());
        EXPECT_LE(tokens + task.answer_tokens, length) << question.id;
        EXPECT_GE(tokens + task.answer_tokens, length - kGrain) << question.id;
        EXPECT_EQ(question.max_tokens, task.answer_tokens);
        EXPECT_TRUE(question.stop.empty());
      }
    }
  }
}

TEST_F(Ruler, PromptsDependOnSeedLengthTaskAndSampleOnly) {
  const auto many =
      make_ruler(source_, encode_, {.lengths = {1000, 1200}, .tasks = {"vt", "fwe"}, .samples = 2});
  ASSERT_EQ(many.size(), 8U);
  EXPECT_EQ(many[7].id, "1200/fwe/1");
  const auto one =
      make_ruler(source_, encode_, {.lengths = {1200}, .tasks = {"fwe"}, .samples = 2});
  EXPECT_EQ(one[1].prompt, many[7].prompt);
  EXPECT_NE(one[0].prompt, one[1].prompt);
  const auto other =
      make_ruler(source_, encode_, {.lengths = {1200}, .tasks = {"fwe"}, .samples = 2, .seed = 2});
  EXPECT_NE(other[1].prompt, one[1].prompt);
}

struct NiahCase {
  std::string task;
  std::size_t needles;  // lines that are not hay
  std::size_t answers;
  std::string value;  // a regular expression
};

TEST_F(Ruler, NeedlesAreAsManyAsPublished) {
  const std::string number = "[1-9][0-9]{6}";
  const std::string uuid = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
  const std::vector<NiahCase> cases{
      {"niah_single_1", 1, 1, number},   {"niah_single_2", 1, 1, number},
      {"niah_single_3", 1, 1, uuid},     {"niah_multikey_1", 4, 1, number},
      {"niah_multikey_2", 0, 1, number}, {"niah_multikey_3", 0, 1, uuid},
      {"niah_multivalue", 4, 4, number}, {"niah_multiquery", 4, 4, number}};
  for (const NiahCase& one : cases) {
    for (const Question& question : make(one.task, 1500)) {
      const std::string prompt = text(question);
      const std::string kind = one.value == uuid ? "uuid" : "number";
      const std::size_t found = occurrences(prompt, "One of the special magic " + kind + "s for ");
      if (one.needles > 0) {
        EXPECT_EQ(found, one.needles);
      } else {
        EXPECT_GT(found, 10U);
      }
      const auto answers = answers_of(question);
      ASSERT_EQ(answers.size(), one.answers);
      for (const std::string& answer : answers) {
        EXPECT_TRUE(std::regex_match(answer, std::regex(one.value))) << answer;
        EXPECT_EQ(occurrences(prompt, " is: " + answer + "."), 1U) << question.id;
      }
      const bool singular = one.answers == 1;
      EXPECT_THAT(prompt, StartsWith(singular ? "A special magic " + kind + " is hidden within"
                                              : "Some special magic numbers are hidden within"));
      EXPECT_THAT(prompt, EndsWith(singular ? "mentioned in the provided text is"
                                            : "mentioned in the provided text are"));
    }
  }
}

TEST_F(Ruler, NeedlesAnswerTheirQuestion) {
  for (const RulerTask& task : ruler_tasks().first(8)) {
    for (const Question& question : make(task.name, 1200)) {
      const std::string prompt = text(question);
      const std::string asked = between(prompt, "? The special magic ", " mentioned in");
      std::vector<std::string> keys;
      const std::regex key("[0-9a-z]+(-[0-9a-z]+)+");
      for (std::sregex_iterator at(asked.begin(), asked.end(), key), end; at != end; ++at) {
        keys.push_back(at->str());
      }
      const auto answers = answers_of(question);
      ASSERT_EQ(keys.size(), task.name == "niah_multiquery" ? 4U : 1U) << asked;
      for (std::size_t i = 0; i < answers.size(); ++i) {
        const std::string& own = keys[i % keys.size()];
        EXPECT_THAT(prompt, HasSubstr(" for " + own + " is: " + answers[i] + ".")) << question.id;
      }
    }
  }
}

TEST_F(Ruler, DepthsVary) {
  for (const char* task : {"niah_single_1", "niah_single_2", "niah_multikey_2"}) {
    double low = 1.0;
    double high = 0.0;
    for (const Question& question : make(task, 1000, 24)) {
      const std::string prompt = text(question);
      const double depth = static_cast<double>(prompt.find(answers_of(question).front())) /
                           static_cast<double>(prompt.size());
      low = std::min(low, depth);
      high = std::max(high, depth);
    }
    EXPECT_LT(low, 0.3) << task;
    EXPECT_GT(high, 0.7) << task;
  }
}

TEST_F(Ruler, TrackingShowsAnExampleAndAChain) {
  for (const Question& question : make("vt", 1500)) {
    const std::string prompt = text(question);
    EXPECT_EQ(occurrences(prompt, "Memorize and track the chain(s)"), 2U);
    EXPECT_EQ(occurrences(prompt, " = VAR "), 8U);
    EXPECT_THAT(prompt, EndsWith(" they are: "));
    const std::string own = prompt.substr(prompt.rfind("Memorize and track"));
    const std::string value = between(own, "assigned the value ", ", they are");
    const auto names = answers_of(question);
    ASSERT_EQ(names.size(), 5U);
    std::size_t at = own.find("VAR " + names[0] + " = " + value + "\n");
    for (std::size_t i = 1; i < names.size(); ++i) {
      EXPECT_EQ(names[i].size(), 5U);
      const std::size_t next = own.find("VAR " + names[i] + " = VAR " + names[i - 1] + " \n");
      ASSERT_NE(next, std::string::npos);
      EXPECT_GT(next, at);
      at = next;
    }
  }
}

TEST_F(Ruler, CommonWordsComeMostOften) {
  for (const auto& [length, common, other] :
       {std::tuple{2000, 6, 1}, {4096, 6, 1}, {8192, 30, 3}}) {
    for (const Question& question : make("cwe", length)) {
      const std::string prompt = text(question);
      const std::string list = between(prompt, "appear most often.\n", "\nQuestion:");
      std::map<std::string, int> count;
      std::istringstream stream(list);
      int last = 0;
      for (std::string number, word; stream >> number >> word; ++last) {
        EXPECT_EQ(number, std::to_string(last + 1) + ".");
        ++count[word];
      }
      const auto answers = answers_of(question);
      EXPECT_EQ(std::set(answers.begin(), answers.end()).size(), 10U);
      for (const auto& [word, times] : count) {
        const bool is_answer = std::ranges::find(answers, word) != answers.end();
        EXPECT_EQ(times, is_answer ? common : other) << word;
      }
      EXPECT_GT(count.size(), 20U);
      EXPECT_EQ(occurrences(prompt, "Below is a numbered list of words."), 2U);
      EXPECT_THAT(prompt, EndsWith("appear most often in the list are:"));
    }
  }
}

TEST_F(Ruler, FrequentWordsFollowAZetaDistribution) {
  for (const Question& question : make("fwe", 3000)) {
    const std::string list =
        between(text(question), "most frequently appeared coded words. ", "\nQuestion:");
    std::map<std::string, double> count;
    std::istringstream stream(list);
    for (std::string word; stream >> word;) {
      ++count[word];
    }
    const auto answers = answers_of(question);
    ASSERT_EQ(answers.size(), 3U);
    // Counts are rounded down.
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const double rank = static_cast<double>(i) + 2.0;
      EXPECT_NEAR(count.at(answers[i]), count.at("...") / (rank * rank), 1.0);
    }
    for (const auto& [word, times] : count) {
      if (word != "..." && std::ranges::find(answers, word) == answers.end()) {
        EXPECT_LT(times, count.at(answers.back()));
      }
    }
  }
}

TEST_F(Ruler, NamesWhatHasNoRoom) {
  for (const RulerTask& task : ruler_tasks().first(11)) {
    try {
      static_cast<void>(make(task.name, task.answer_tokens + 20));
      FAIL() << task.name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("20 prompt tokens have no room")) << task.name;
    }
  }
  EXPECT_THROW(static_cast<void>(make("niah", 1000)), Error);
  EXPECT_THROW(static_cast<void>(make("vt", 1000, 0)), Error);
}

TEST(GradeRuler, CountsStrings) {
  const auto score = [](const std::string& task, const std::vector<std::string>& answers,
                        const std::string& text) {
    Question question;
    question.facts = {{"task", task}, {"answers", answers}};
    const Json grade = grade_ruler(question, text);
    EXPECT_EQ(grade.at("correct").get<bool>(), grade.at("score") == 1.0);
    return grade.at("score").get<double>();
  };
  EXPECT_EQ(score("cwe", {"apple", "pear"}, "1. Apple 2. PEAR"), 1.0);
  EXPECT_EQ(score("cwe", {"apple", "pear"}, "1. apple 2. plum"), 0.5);
  EXPECT_EQ(score("niah_multivalue", {"1", "2", "3", "4"}, "4 and 5"), 0.25);
  EXPECT_EQ(score("vt", {"ABCDE"}, ""), 0.0);
  EXPECT_EQ(score("qa_1", {"Denver", "the Denver Broncos"}, " denver."), 1.0);
  EXPECT_EQ(score("qa_2", {"yes"}, " no"), 0.0);
}

TEST(LargestFit, FindsTheLastThatFits) {
  for (int last = 3; last < 200; ++last) {
    EXPECT_EQ(largest_fit(10 * last + 3, 3, [](int size) { return 10U * size; }), last);
  }
  EXPECT_EQ(largest_fit(29, 3, [](int size) { return 10U * size; }), std::nullopt);
}

TEST(Vocabulary, TakesWordsOfTheTextAndInventsMore) {
  const Vocabulary some("The Quick br0wn fox_trot jumped! Über quick-witted.");
  const auto& words = some.words();
  EXPECT_EQ(std::vector(words.begin(), words.begin() + 3),
            (std::vector<std::string>{"jumped", "quick", "witted"}));
  EXPECT_EQ(words.size(), 500U);
  const auto few = some.draw(10, Random(3));
  const auto many = some.draw(2000, Random(3));
  EXPECT_EQ(few, std::vector(many.begin(), many.begin() + 10));
  EXPECT_EQ(std::set(many.begin(), many.end()).size(), 2000U);
}

}  // namespace
}  // namespace winnow::eval
