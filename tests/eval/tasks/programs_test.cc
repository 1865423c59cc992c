// Programs as answers: correct and wrong ones, run in the sandbox.
#include "eval/tasks/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "eval/temp_file.h"

namespace winnow::eval {
namespace {

using ::testing::HasSubstr;
using winnow::testing::message_of;

class GradeProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      python_ = std::make_unique<SandboxedPython>("python3");
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // The error in the answer to a line of the task's data; "" if it is correct.
  std::string verdict(const char* name, const nlohmann::json& data, const std::string& answer) {
    const TextTask& task = *find_text_task(name);
    Question question;
    question.hidden =
        std::make_shared<const Json>(task.parse(DataLine(data, "data.jsonl:7")).hidden);
    const Json grade = grade_program(*python_, task, question, answer);
    EXPECT_EQ(grade.at("correct").get<bool>(), grade.at("why") == "");
    return grade.at("why").get<std::string>();
  }

  std::unique_ptr<SandboxedPython> python_;
};

TEST_F(GradeProgram, HumanEval) {
  const nlohmann::json data{{"task_id", "HumanEval/0"},
                            {"prompt", "import math\n\ndef add(a, b):\n    \"\"\"The sum.\"\"\"\n"},
                            {"entry_point", "add"},
                            {"test", "def check(candidate):\n    assert candidate(1, 2) == 3\n"}};
  const auto says = [&](const std::string& answer) { return verdict("humaneval", data, answer); };
  EXPECT_EQ(says("    return a + b\n"), "");
  EXPECT_THAT(says("    return a - b\n"), HasSubstr("AssertionError"));
  EXPECT_EQ(says("Here:\n```python\ndef add(a, b):\n    return int(math.fsum([a, b]))\n```\nDone."),
            "");
  EXPECT_EQ(says("    import sys; sys.exit(0)\n"), "left before its end");
  EXPECT_NE(says(""), "");
}

// Private tests as they are published: JSON text, pickled, compressed, in base64. This one expects
// 16 for 4.
constexpr const char* kPickled =
    "eJxrYJlqywABPZbR1UqZeQWlJUpWCkomMXlKOgpK+aUlUAFDM4hISWpxSUllQSpIrLgkJTNPqTZ2ih4ApwMUgA==";

nlohmann::json squares() {
  return {{"question_id", "a1"},
          {"question_content", "Print the square of a number."},
          {"starter_code", ""},
          {"difficulty", "easy"},
          {"public_test_cases", R"([{"input": "3\n", "output": "9\n", "testtype": "stdin"}])"},
          {"private_test_cases", kPickled},
          {"metadata", "{}"}};
}

std::string fenced(const std::string& code) {
  return "```python\n" + code + "\n```";
}

TEST_F(GradeProgram, LiveCodeBenchFromStandardInput) {
  const auto says = [&](const std::string& code) {
    return verdict("livecodebench", squares(), "First ```x``` and then\n" + fenced(code));
  };
  EXPECT_EQ(says("print(int(input()) ** 2)"), "");
  EXPECT_EQ(says("import sys\nn = int(sys.stdin.readline())\nprint(n * n)\nsys.exit()"), "");
  EXPECT_EQ(says("n = int(open(0).read())\nprint(n * n)"), "");
  EXPECT_EQ(says("import sys\nn = int(sys.stdin.buffer.read())\nprint(float(n * n))"), "");
  EXPECT_EQ(
      says("def main():\n  print(pow(int(input()), 2))\nif __name__ == '__main__':\n  main()"), "");
  EXPECT_THAT(says("print(9)"), HasSubstr("test 1"));  // the private test
  EXPECT_THAT(says("print(int(input()) + 6)"), HasSubstr("test 1"));
  EXPECT_THAT(says("print(input())"), HasSubstr("test 0"));
  EXPECT_THAT(says("print(int(input()) ** 2, 1)"), HasSubstr("test 0"));
  EXPECT_THAT(says("import sys\nprint(int(input()) ** 2)\nsys.exit(3)"), HasSubstr("exits with 3"));
  EXPECT_THAT(says("import os\nos._exit(0)"), HasSubstr("left before its end"));
  EXPECT_THAT(says("print('\"\"\" \\xe9' and undefined)"), HasSubstr("NameError"));
}

TEST_F(GradeProgram, LiveCodeBenchFunctions) {
  nlohmann::json data = squares();
  data["starter_code"] =
      "class Solution:\n    def ends(self, a: List[int], b: str) -> List[int]:\n";
  data["metadata"] = R"({"func_name": "ends"})";
  data["public_test_cases"] =
      R"([{"input": "[1, 2, 3]\n\"x\"", "output": "[1, 3]", "testtype": "functional"}])";
  data["private_test_cases"] =
      R"([{"input": "[7]\n\"\"", "output": "[7, 7]", "testtype": "functional"}])";
  const auto says = [&](const std::string& body) {
    return verdict("livecodebench", data,
                   fenced("class Solution:\n  def ends(self, a: List[int], b: str):\n    " + body));
  };
  EXPECT_EQ(says("return [a[0], a[-1]]"), "");
  EXPECT_EQ(says("return (a[0], a[-1])"), "");
  EXPECT_THAT(says("return [a[0], a[2]]"), HasSubstr("IndexError"));
  EXPECT_THAT(says("return [1, 3]"), HasSubstr("test 1"));
  EXPECT_THAT(find_text_task("livecodebench")->parse(DataLine(data, "d:1")).message,
              HasSubstr("class Solution"));
}

TEST(LiveCodeBench, KeepsTestsOutOfRecords) {
  const TextCase one = find_text_task("livecodebench")->parse(DataLine(squares(), "d:1"));
  EXPECT_EQ(one.facts,
            (Json{{"task", "livecodebench"}, {"question_id", "a1"}, {"difficulty", "easy"}}));
  EXPECT_THAT(one.message, HasSubstr("Print the square of a number."));
  nlohmann::json wrong = squares();
  wrong["metadata"] = "[]";
  EXPECT_THAT(message_of([&] { find_text_task("livecodebench")->parse(DataLine(wrong, "d:1")); }),
              HasSubstr("d:1: expected an object in a text under \"metadata\""));
}

TEST(CodeOf, TakesABlock) {
  const std::string text = "a\n```py\none\n```\nb\n```\ntwo\n```\nc";
  EXPECT_EQ(code_of(text, Block::first), "one\n");
  EXPECT_EQ(code_of(text, Block::last), "two\n");
  EXPECT_EQ(code_of("```\none\n```\n```\ncut", Block::last), "cut");
  EXPECT_EQ(code_of("x = 1", Block::last), "x = 1");
}

TEST(PassAtK, IsTheUnbiasedEstimate) {
  EXPECT_DOUBLE_EQ(pass_at_k(10, 3, 1), 0.3);
  EXPECT_DOUBLE_EQ(pass_at_k(5, 1, 2), 1.0 - 6.0 / 10.0);  // C(4, 2) of the C(5, 2) choices miss it
  EXPECT_DOUBLE_EQ(pass_at_k(4, 0, 2), 0.0);
  EXPECT_DOUBLE_EQ(pass_at_k(4, 3, 2), 1.0);
}

}  // namespace
}  // namespace winnow::eval
