// The formats of data sets, the prompts for a model, and the errors for malformed lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "api/llm_session.h"
#include "base/error.h"
#include "eval/tasks/choice_formats.h"
#include "eval/tasks/gpqa.h"
#include "eval/tasks/text_tasks.h"
#include "eval/temp_file.h"

namespace winnow::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using winnow::testing::message_of;
using winnow::testing::TempFile;

DataLine line(const char* json) {
  return {nlohmann::json::parse(json), "data.jsonl:7"};
}

ChoiceQuestion parse(const char* task, const char* json) {
  return find_choice_task(task)->parse(line(json));
}

std::vector<std::string> continuations(const ChoiceQuestion& question) {
  std::vector<std::string> result;
  for (const Choice& choice : question.choices) {
    result.push_back(choice.continuation);
  }
  return result;
}

TEST(ChoiceFormats, Mmlu) {
  const auto question = parse(
      "mmlu",
      R"({"question": " 2+2?\n", "choices": ["3", "4", "5", "6"], "answer": 1, "subject": "maths"})");
  EXPECT_EQ(question.choices[0].context, "2+2?\nA. 3\nB. 4\nC. 5\nD. 6\nAnswer:");
  EXPECT_THAT(continuations(question), ElementsAre(" A", " B", " C", " D"));
  EXPECT_EQ(question.answer, 1U);
  EXPECT_EQ(
      parse("mmlu", R"({"question": "q", "choices": ["a","b","c","d"], "answer": "D"})").answer,
      3U);
}

TEST(ChoiceFormats, HellaSwag) {
  const auto question = parse("hellaswag", R"({"activity_label": "Roof shingle removal",
      "ctx_a": "[header] How to do it [title] Start.", "ctx_b": "he IS",
      "endings": ["a [substeps] b.", "c.", "d.", "e."], "label": "2"})");
  EXPECT_EQ(question.choices[0].context, "Roof shingle removal: How to do it. Start. He is");
  EXPECT_THAT(continuations(question), ElementsAre(" a b.", " c.", " d.", " e."));
  EXPECT_EQ(question.answer, 2U);
}

TEST(ChoiceFormats, ArcOfBothKinds) {
  const auto published = parse("arc", R"({"question": {"stem": "Why?", "choices":
      [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}]}, "answerKey": "B"})");
  const auto hub = parse("arc", R"({"question": "Why?", "choices":
      {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"})");
  for (const auto& question : {published, hub}) {
    EXPECT_EQ(question.choices[0].context, "Question: Why?\nAnswer:");
    EXPECT_THAT(continuations(question), ElementsAre(" x", " y"));
    EXPECT_EQ(question.answer, 1U);
  }
}

TEST(ChoiceFormats, PiqaBoolqWinogrande) {
  const auto piqa = parse("piqa", R"({"goal": "Open it", "sol1": "x", "sol2": "y", "label": 1})");
  EXPECT_EQ(piqa.choices[1].context + piqa.choices[1].continuation, "Question: Open it\nAnswer: y");
  EXPECT_EQ(piqa.answer, 1U);
  const auto boolq = parse("boolq", R"({"passage": "P.", "question": "is it", "answer": true})");
  EXPECT_EQ(boolq.choices[0].context, "P.\nQuestion: is it?\nAnswer:");
  EXPECT_THAT(continuations(boolq), ElementsAre(" no", " yes"));
  EXPECT_EQ(boolq.answer, 1U);
  const auto winogrande = parse(
      "winogrande",
      R"({"sentence": "Ann met Bea, so _ ran. ", "option1": "Ann", "option2": "Bea", "answer": "2"})");
  EXPECT_EQ(winogrande.choices[0].context, "Ann met Bea, so Ann");
  EXPECT_EQ(winogrande.choices[1].context, "Ann met Bea, so Bea");
  EXPECT_THAT(continuations(winogrande), ElementsAre(" ran.", " ran."));
  EXPECT_EQ(winogrande.answer, 1U);
}

TEST(ChoiceFormats, SayWhatIsWrongAndWhere) {
  const std::vector<std::tuple<const char*, const char*, const char*>> wrong{
      {"mmlu", R"({"question": "q", "choices": ["a"], "answer": 0})", "a list of 4 texts"},
      {"mmlu", R"({"question": "q", "choices": ["a","b","c","d"], "answer": 4})", "from 0 to 3"},
      {"mmlu", R"({"question": "q", "choices": ["a","b","c","d"], "answer": 4294967297})",
       "from 0 to 3"},
      {"mmlu", R"({"choices": ["a","b","c","d"], "answer": 0})",
       "a text under \"question\", found nothing"},
      {"hellaswag", R"({"activity_label": "a", "ctx_a": "b", "endings": ["c", 3], "label": 0})",
       "endings"},
      {"hellaswag", R"({"activity_label": "a", "ctx_a": "b", "endings": ["c"], "label": 1})",
       "label"},
      {"arc", R"({"question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "E"})",
       "answerKey"},
      {"arc",
       R"({"question": "q", "choices": {"text": ["a"], "label": ["A", "B"]}, "answerKey": "B"})",
       "as many texts as labels"},
      {"arc", R"({"question": {"stem": "q"}, "answerKey": "E"})", "choices"},
      {"piqa", R"({"goal": "g", "sol1": "x", "label": 0})", "sol2"},
      {"boolq", R"({"passage": "p", "question": "q", "answer": "yes"})", "true or false"},
      {"winogrande", R"({"sentence": "no gap", "option1": "a", "option2": "b", "answer": "1"})",
       "gap"},
      {"winogrande", R"({"sentence": "_", "option1": "a", "option2": "b", "answer": ""})",
       "from 1 to 2"},
  };
  for (const auto& [task, json, expected] : wrong) {
    const std::string message = message_of([&task = task, &json = json] { parse(task, json); });
    EXPECT_THAT(message, HasSubstr("data.jsonl:7: expected ")) << json;
    EXPECT_THAT(message, HasSubstr(expected)) << json;
  }
}

TEST(ReadData, NamesTheLine) {
  const TempFile file(".jsonl");
  file.write("{\"a\": 1}\n\n{broken\n");
  EXPECT_THAT(message_of([&] { read_data(file.path()); }), HasSubstr(".jsonl:3"));
  file.write("{\"a\": 1}\n[1]\n");
  EXPECT_THAT(message_of([&] { read_data(file.path()); }),
              HasSubstr(".jsonl:2: expected an object"));
  file.write("\n \n");
  EXPECT_THAT(message_of([&] { read_data(file.path()); }), HasSubstr("found none"));
  EXPECT_THAT(message_of([] { read_data("/absent.jsonl"); }), HasSubstr("no such file"));
  file.write("{\"a\": 1}\n{\"a\": 2}");
  EXPECT_EQ(read_data(file.path()).size(), 2U);
}

TEST(LoadChoices, ShowsOthersFirst) {
  const char* const one =
      R"({"question": "one?", "choices": ["a","b","c","d"], "answer": 0, "subject": "s_t"})";
  const char* const two =
      R"({"question": "two?", "choices": ["a","b","c","d"], "answer": 2, "subject": "s_t"})";
  const char* const other =
      R"({"question": "other?", "choices": ["a","b","c","d"], "answer": 2, "subject": "u"})";
  const ChoiceTask& task = *find_choice_task("mmlu");
  const auto questions = load_choices(task, {line(one)}, {line(other), line(one), line(two)}, 1);
  ASSERT_EQ(questions.size(), 1U);
  EXPECT_EQ(questions[0].choices[3].context,
            "The following are multiple choice questions (with answers) about s t.\n\n"
            "two?\nA. a\nB. b\nC. c\nD. d\nAnswer: C\n\none?\nA. a\nB. b\nC. c\nD. d\nAnswer:");
  EXPECT_THAT(message_of([&] { load_choices(task, {line(one)}, {line(two)}, 2); }),
              HasSubstr("data.jsonl:7: expected 2 demonstrations"));
}

class DemoModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/dms-cr8";
    LoadOptions options;
    options.model = path.string();
    options.dtype = "fp32";
    options.threads = 1;
    options.deterministic = true;
    model_ = engine::load_model(options);
    tokenizer_ = load_tokenizer(path);
  }
  // log p(tokens[first..] | tokens before), computed in a session of its own.
  [[nodiscard]] double logprob(const std::vector<std::int32_t>& tokens, std::size_t first) const {
    const auto vocab = static_cast<std::size_t>(model_->model.spec().vocab);
    const int length = static_cast<int>(tokens.size());
    engine::Session session(*model_->backend, model_->engine, {length, length});
    std::vector<float> logits(tokens.size() * vocab);
    session.feed(tokens, logits);
    double sum = 0.0;
    for (std::size_t t = first; t < tokens.size(); ++t) {
      const auto row = std::span(logits).subspan((t - 1) * vocab, vocab);
      double total = 0.0;
      for (const float logit : row) {
        total += std::exp(double{logit});
      }
      sum += double{row[static_cast<std::size_t>(tokens[t])]} - std::log(total);
    }
    return sum;
  }

  std::unique_ptr<const engine::LoadedModel> model_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(DemoModel, ScoresEachChoiceAsIfAlone) {
  std::vector<ChoiceQuestion> questions(3);
  questions[0] = {"a",
                  {{"The capital of France is", " Paris."},
                   {"The capital of France is", " a long way from here."},
                   {"The capital of France is", " P"}},
                  0,
                  ""};
  questions[1] = {"b", {{"Ann met Bea, so Ann", " ran."}, {"Ann met Bea, so Bea", " ran."}}, 1, ""};
  questions[2] = {"c", {{"", "No context at all."}, {"Spaces go over ", "there."}}, 0, ""};
  Journal journal;
  score_choices(*model_, *tokenizer_, questions, {.batch = 2}, journal);
  for (const ChoiceQuestion& question : questions) {
    const Json& record = *journal.find(question.id);
    for (std::size_t i = 0; i < question.choices.size(); ++i) {
      std::string context = question.choices[i].context;
      std::string continuation = question.choices[i].continuation;
      while (context.ends_with(" ")) {
        context.pop_back();
        continuation = fmt::format(" {}", continuation);
      }
      const auto all = tokenizer_->encode(context + continuation);
      const std::size_t first = tokenizer_->encode(context).size();
      EXPECT_NEAR(record.at("logprobs").at(i).get<double>(),
                  logprob(all, std::max<std::size_t>(1, first)), 1e-4)
          << question.id << " " << i;
    }
  }
  const ChoiceSummary summary = summarize_choices(journal, questions);
  EXPECT_EQ(summary.questions, 3);
}

// lm-evaluation-harness: Python's len(choice), without the delimiter before the choice.
TEST(ChoiceCharacters, AreThoseOfTheChoiceAlone) {
  EXPECT_EQ(choice_characters(" Paris."), 6U);
  EXPECT_EQ(choice_characters(" Zürich"), 6U);
  EXPECT_EQ(choice_characters("no space"), 8U);
  EXPECT_EQ(choice_characters(" "), 1U);
}

TEST_F(DemoModel, SkipsChoicesThatAreTooLong) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += "word ";
  }
  const std::vector<ChoiceQuestion> questions{{"a", {{text, "x"}, {text, "y"}}, 0, ""},
                                              {"b", {{"A", " b"}, {"A", " c"}}, 0, ""}};
  Journal journal;
  score_choices(*model_, *tokenizer_, questions, {}, journal);
  EXPECT_EQ(summarize_choices(journal, questions).skipped, 1);
  EXPECT_EQ(summarize_choices(journal, questions).questions, 1);
}

TEST(TextTasks, ReadTheirFormats) {
  const auto gsm8k = find_text_task("gsm8k")->parse(
      line(R"({"question": "How many?", "answer": "2+3=<<2+3=5>>5\n#### 1,005"})"));
  EXPECT_EQ(gsm8k.prompt, "Question: How many?\nAnswer:");
  EXPECT_EQ(gsm8k.solution, "2+3=<<2+3=5>>5\n#### 1,005");
  EXPECT_EQ(gsm8k.facts.at("expected"), "1005");
  const auto math = find_text_task("math")->parse(
      line(R"({"problem": "P", "solution": "S \\boxed{1}", "answer": "1", "level": 3})"));
  EXPECT_EQ(math.solution, "S \\boxed{1}");
  EXPECT_EQ(math.facts.at("level"), 3);
  EXPECT_EQ(
      find_text_task("aime")->parse(line(R"({"Problem": "P", "Answer": 70})")).facts.at("expected"),
      "70");
  EXPECT_THAT(message_of([] {
                find_text_task("gsm8k")->parse(line(R"({"question": "q", "answer": "5"})"));
              }),
              HasSubstr("data.jsonl:7: expected a solution that ends in \"#### <number>\""));
  EXPECT_THAT(message_of([] { find_text_task("humaneval")->parse(line(R"({"prompt": "p"})")); }),
              HasSubstr("task_id"));
  EXPECT_EQ(find_text_task("nonsense"), nullptr);
}

TEST(TextTasks, ShowOthersFirst) {
  const auto encode = [](const std::string& text) {
    return std::vector<std::int32_t>(text.begin(), text.end());
  };
  const DataLine one = line(R"({"question": "one", "answer": "#### 1"})");
  const DataLine two = line(R"({"question": "two", "answer": "#### 2"})");
  const auto questions =
      load_questions(*find_text_task("gsm8k"), {one}, {one, two}, {.shots = 1}, encode);
  EXPECT_EQ(std::string(questions[0].prompt.begin(), questions[0].prompt.end()),
            "Question: two\nAnswer: #### 2\n\nQuestion: one\nAnswer:");
  EXPECT_THROW(load_questions(*find_text_task("gsm8k"), {one}, {one}, {.shots = 1}, encode), Error);
  const auto encode_chat = [](std::span<const ChatMessage> messages) {
    std::vector<std::int32_t> tokens;
    for (const ChatMessage& message : messages) {
      std::ranges::copy(message.role + ": " + message.content + "\n", std::back_inserter(tokens));
    }
    return tokens;
  };
  const auto chat = load_questions(*find_text_task("gsm8k"), {one}, {one, two},
                                   {.shots = 1, .chat = encode_chat}, encode);
  EXPECT_EQ(std::string(chat[0].prompt.begin(), chat[0].prompt.end()),
            "user: two\nassistant: #### 2\nuser: one\n");
  EXPECT_TRUE(chat[0].stop.empty());
}

TEST(TextTasks, GpqaHidesTheAnswerAmongOthers) {
  const char* const text = R"({"Question": "Why? ", "Correct Answer": "red\n", "Incorrect Answer 1":
      "green", "Incorrect Answer 2": "blue", "Incorrect Answer 3": "grey", "Explanation": "So."})";
  const TextCase gpqa = find_text_task("gpqa")->parse(line(text));
  const auto letter = gpqa.facts.at("expected").get<std::string>();
  EXPECT_THAT(gpqa.prompt, HasSubstr("\n" + letter + ") red\n"));
  for (const char* choice : {") green\n", ") blue\n", ") grey\n"}) {
    EXPECT_THAT(gpqa.prompt, HasSubstr(choice));
  }
  EXPECT_TRUE(gpqa.prompt.starts_with("Question: Why?\n\nA) ")) << gpqa.prompt;
  EXPECT_TRUE(gpqa.prompt.ends_with("\nAnswer:")) << gpqa.prompt;
  EXPECT_THAT(gpqa.message, HasSubstr("'Answer: $LETTER'"));
  EXPECT_EQ(gpqa.solution, "So.\n\nAnswer: " + letter);
  EXPECT_EQ(find_text_task("gpqa")->parse(line(text)).prompt, gpqa.prompt);
}

TEST(TextTasks, GpqaPutsCorrectAnswersEverywhere) {
  std::map<std::string, int> places;
  for (int i = 0; i < 400; ++i) {
    const std::string text = fmt::format(
        R"({{"Question": "What is {}?", "Correct Answer": "a", "Incorrect Answer 1": "b",
             "Incorrect Answer 2": "c", "Incorrect Answer 3": "d"}})",
        i);
    ++places[find_text_task("gpqa")->parse(line(text.c_str())).facts.at("expected")];
  }
  ASSERT_EQ(places.size(), 4);
  for (const auto& [letter, count] : places) {
    EXPECT_GT(count, 60) << letter;
  }
}

TEST(StatedLetter, IsTheLastOneStated) {
  EXPECT_EQ(stated_letter("A is wrong. Answer: C"), "C");
  EXPECT_EQ(stated_letter("The answer is A? No.\n**Answer: (B)**"), "B");
  EXPECT_EQ(stated_letter("the correct answer is **D**."), "D");
  EXPECT_EQ(stated_letter("so the final answer is: $\\boxed{\\text{B}}$. I hope"), "B");
  EXPECT_EQ(stated_letter("Hence \\boxed{C}."), "C");
  EXPECT_EQ(stated_letter(" B"), "B");
  EXPECT_EQ(stated_letter("Answer: A. My answer stands."), "A");
  EXPECT_EQ(stated_letter("Answer: All of them"), "");
  EXPECT_EQ(stated_letter("Because of gravity"), "");
  EXPECT_EQ(stated_letter("Answer: E"), "");
  EXPECT_EQ(stated_letter(""), "");
}

TEST(ReadData, TakesCommaSeparatedValues) {
  const TempFile file(".csv");
  file.write("Question,Answer\r\n\"Why, \"\"he\"\"\nasked?\",42\r\nplain,\n");
  const auto lines = read_data(file.path());
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0].text({"Question"}), "Why, \"he\"\nasked?");
  EXPECT_EQ(lines[0].text({"Answer"}), "42");
  EXPECT_EQ(lines[1].text({"Answer"}), "");
  EXPECT_THAT(lines[1].where(), HasSubstr(".csv:4"));
  const auto message = [&](const std::string& text) {
    file.write(text);
    return message_of([&] { read_data(file.path()); });
  };
  EXPECT_THAT(message("a,b\n1,2,3\n"), HasSubstr(":2: expected 2 fields, found 3"));
  EXPECT_THAT(message("a,b\n1,\"2\n"), HasSubstr(":2: a quote is opened and not closed"));
  EXPECT_THAT(message("a,b\n1,\"2\"3\n"), HasSubstr(":2: expected a comma or a line's end"));
  EXPECT_THAT(message("a,b\n"), HasSubstr("expected a case per row, found none"));
  EXPECT_THAT(message("a,b\n1,\xFF\n"), HasSubstr(":2: field \"b\" is not UTF-8"));
}

TEST(GradeText, OfGsm8kAndMath) {
  Question gsm8k;
  gsm8k.facts = {{"task", "gsm8k"}, {"expected", "18"}};
  const auto graded = [](const Question& question, const std::string& text) {
    return grade_text(question, text).at("correct").get<bool>();
  };
  EXPECT_TRUE(graded(gsm8k, " 9 x 2 = 18.\n#### 18"));
  EXPECT_TRUE(graded(gsm8k, " The answer is $18.00."));
  EXPECT_FALSE(graded(gsm8k, " 18 and then 19"));
  EXPECT_FALSE(graded(gsm8k, ""));
  EXPECT_EQ(grade_text(gsm8k, "18").at("strict"), false);
  Question math;
  math.facts = {{"task", "math"}, {"expected", "\\frac{1}{2}"}};
  EXPECT_TRUE(graded(math, "so $\\boxed{0.5}$"));
  EXPECT_TRUE(graded(math, "The final answer is $1/2$."));
  EXPECT_FALSE(graded(math, "\\boxed{\\frac{1}{3}} is 1/2"));
  Question gpqa;
  gpqa.facts = {{"task", "gpqa"}, {"expected", "C"}};
  EXPECT_TRUE(graded(gpqa, "It is not B. Answer: C"));
  EXPECT_FALSE(graded(gpqa, "C would be wrong. Answer: B"));
}

}  // namespace
}  // namespace winnow::eval
