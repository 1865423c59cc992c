// Tasks that are answered with text or code, in their published formats: GSM8K, MATH, AIME, GPQA,
// HumanEval and LiveCodeBench.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "eval/haystack.h"
#include "eval/questions.h"
#include "eval/tasks/data_file.h"
#include "winnow/llm.h"

namespace winnow::eval {

/// A task's case without demonstrations.
struct TextCase {
  std::string prompt;         // as text to be continued
  std::string message;        // as a chat's message
  std::string solution = {};  // expected after either; "": no demonstrations
  Json facts = {};            // for the record
  Json hidden = {};           // further data for the grader
};

struct TextTask {
  std::string_view name;
  TextCase (*parse)(const DataLine& line);
  std::vector<std::string> stop;
  int max_tokens;  // of an answer, by default
  /// For tasks that programs answer: turns an answer into a program that fails if it is wrong.
  std::string (*program)(const Json& hidden, const std::string& answer) = nullptr;
};

/// nullptr unless the name is one of: gsm8k, math, aime, gpqa, humaneval, livecodebench.
const TextTask* find_text_task(std::string_view name);

/// Converts a chat's messages to the tokens after which the model answers the last one.
using EncodeChat = std::function<std::vector<std::int32_t>(std::span<const ChatMessage>)>;

struct QuestionOptions {
  int shots = 0;         // demonstrations before each question
  int max_tokens = 0;    // of an answer; 0: the task's
  EncodeChat chat = {};  // asks by messages, without stop strings; demonstrations are turns
};

/// Reads the questions. Demonstrations are the first ones of `shots_data`, except the question
/// itself. Ids are the lines' numbers, from 0.
std::vector<Question> load_questions(const TextTask& task, const std::vector<DataLine>& data,
                                     const std::vector<DataLine>& shots_data,
                                     const QuestionOptions& options, const EncodePrompt& encode);

/// gsm8k: correct if the last number in the answer is right, strict: it follows "####".
/// math and aime: correct when the stated answer agrees (answer_check.h). gpqa: by the letter.
Json grade_text(const Question& question, const std::string& text);

}  // namespace winnow::eval
