// Tasks that are answered in words or code, in their published formats: GSM8K, MATH, AIME, GPQA,
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
  std::string solution = {};  // what should follow either; "" where none are demonstrated
  Json facts = {};            // what stands in the record
  Json hidden = {};           // what else the grader needs
};

struct TextTask {
  std::string_view name;
  TextCase (*parse)(const DataLine& line);
  std::vector<std::string> stop;
  int max_tokens;  // of an answer, unless told otherwise
  /// Of a task that programs answer: an answer as a program that fails where it is wrong.
  std::string (*program)(const Json& hidden, const std::string& answer) = nullptr;
};

/// nullptr for a name that is none of: gsm8k, math, aime, gpqa, humaneval, livecodebench.
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
/// math and aime: correct when the stated answer agrees (answer_check.h). gpqa: by the letter.
Json grade_text(const Question& question, const std::string& text);

}  // namespace winnow::eval
