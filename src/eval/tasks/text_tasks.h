// Tasks that are answered in words or code: GSM8K, MATH, AIME and HumanEval in their published
// formats.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "eval/haystack.h"
#include "eval/python.h"
#include "eval/questions.h"
#include "eval/tasks/data_file.h"
#include "winnow/llm.h"

namespace winnow::eval {

/// A task's case without demonstrations.
struct TextCase {
  std::string prompt;    // as text to be continued
  std::string message;   // as a chat's message
  std::string solution;  // what should follow either; "" where none are demonstrated
  Json facts;            // what the grader needs
};

struct TextTask {
  std::string_view name;
  TextCase (*parse)(const DataLine& line);
  std::vector<std::string> stop;
  int max_tokens;  // of an answer, unless told otherwise
};

/// nullptr for a name that is none of: gsm8k, math, aime, humaneval.
const TextTask* find_text_task(std::string_view name);

/// A chat's messages to the tokens after which the model answers the last one.
using EncodeChat = std::function<std::vector<std::int32_t>(std::span<const ChatMessage>)>;

struct QuestionOptions {
  int shots = 0;         // demonstrations in front of each question
  int max_tokens = 0;    // of an answer; 0: the task's
  EncodeChat chat = {};  // ask by messages, without stop strings; demonstrations are earlier turns
};

/// Reads the questions. Demonstrations are the first ones of `shots_data` that are not the question
/// itself. Ids are the lines' numbers, from 0.
std::vector<Question> load_questions(const TextTask& task, const std::vector<DataLine>& data,
                                     const std::vector<DataLine>& shots_data,
                                     const QuestionOptions& options, const EncodePrompt& encode);

/// gsm8k: correct when the number stated last is the answer, strict: it stands behind "####".
/// math and aime: correct when the stated answer agrees (answer_check.h).
Json grade_text(const Question& question, const std::string& text);

/// humaneval: correct when the program, run in `python`, passes the task's tests.
Json grade_program(const SandboxedPython& python, const Question& question,
                   const std::string& text);

/// What of an answer is code: the first fenced block, else all of it.
std::string code_of(const std::string& text);

/// The probability that one of k answers is correct, from `correct` of n: 1 - C(n-c, k) / C(n, k)
/// (Chen et al. 2021).
double pass_at_k(int n, int correct, int k);

}  // namespace winnow::eval
