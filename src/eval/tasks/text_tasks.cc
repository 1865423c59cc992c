#include "eval/tasks/text_tasks.h"

#include <algorithm>
#include <memory>

#include "answers/answer_check.h"
#include "base/error.h"
#include "eval/tasks/gpqa.h"
#include "eval/tasks/programs.h"

// Messages of math, aime, gpqa and livecodebench are literally those of Open-R1's evaluation (its
// tasks for lighteval), because accuracies depend on them.
namespace winnow::eval {
namespace {

using answers::answers_agree;
using answers::marked_answer;
using answers::stated_answer;

// {"question", "answer": worked steps, "#### 18"}
TextCase parse_gsm8k(const DataLine& line) {
  const std::string question = line.text({"question"});
  const std::string solution = line.text({"answer"});
  const std::string answer = marked_answer(solution);
  if (answer.empty()) {
    line.reject({"answer"}, "a solution that ends in \"#### <number>\"");
  }
  const std::string prompt = fmt::format("Question: {}\nAnswer:", question);
  return {prompt, question, solution, {{"task", "gsm8k"}, {"expected", answer}}};
}

// {"problem", "answer", "solution"}; AIME varies in spelling, and has no solutions.
TextCase parse_math(const DataLine& line) {
  const std::string problem = line.text({"problem", "Problem", "question"});
  const nlohmann::json* answer = line.find({"answer", "Answer"});
  const std::string expected = answer != nullptr && answer->is_number_integer()
                                   ? answer->dump()
                                   : line.text({"answer", "Answer"});
  const std::string prompt = fmt::format("Problem:\n{}\n\nSolution:", problem);
  TextCase result{
      prompt,
      "Solve the following math problem efficiently and clearly.  The last line of your response "
      "should be of the following format: 'Therefore, the final answer is: $\\boxed{ANSWER}$. I "
      "hope "
      "it is correct' (without quotes) where ANSWER is just the final number or expression that "
      "solves the problem. Think step by step before answering.\n\n" +
          problem,
      line.text({"solution", "Solution"}, ""),
      {{"task", "math"}, {"expected", expected}}};
  for (const char* field : {"subject", "level"}) {
    if (const nlohmann::json* value = line.find({field})) {
      result.facts[field] = *value;
    }
  }
  return result;
}

const std::vector<TextTask>& all_tasks() {
  static const std::vector<TextTask> tasks{
      {"gsm8k", parse_gsm8k, {"Question:"}, 256},
      {"math", parse_math, {"Problem:"}, 1024},
      {"aime", parse_math, {"Problem:"}, 4096},
      {"gpqa", parse_gpqa, {"Question:"}, 4096},
      {"humaneval",
       parse_humaneval,
       {"\nclass", "\ndef", "\n#", "\nif", "\nprint"},
       512,
       humaneval_program},
      {"livecodebench", parse_livecodebench, {"Question:"}, 4096, livecodebench_program},
  };
  return tasks;
}

}  // namespace

const TextTask* find_text_task(std::string_view name) {
  const auto found = std::ranges::find(all_tasks(), name, &TextTask::name);
  return found == all_tasks().end() ? nullptr : &*found;
}

std::vector<Question> load_questions(const TextTask& task, const std::vector<DataLine>& data,
                                     const std::vector<DataLine>& shots_data,
                                     const QuestionOptions& options, const EncodePrompt& encode) {
  std::vector<TextCase> demonstrations;
  for (const DataLine& line : shots_data) {
    demonstrations.push_back(task.parse(line));
  }
  std::vector<Question> questions;
  for (const DataLine& line : data) {
    const TextCase one = task.parse(line);
    std::string text;
    std::vector<ChatMessage> messages;
    int count = 0;
    for (const TextCase& shown : demonstrations) {
      if (count < options.shots && !shown.solution.empty() && shown.prompt != one.prompt) {
        text += fmt::format("{} {}\n\n", shown.prompt, shown.solution);
        messages.push_back({"user", shown.message});
        messages.push_back({"assistant", shown.solution});
        ++count;
      }
    }
    require(count == options.shots, "{}: expected {} demonstrations for it, found {}", line.where(),
            options.shots, count);
    text += one.prompt;
    messages.push_back({"user", one.message});
    questions.push_back(
        {.id = std::to_string(questions.size()),
         .prompt = options.chat ? options.chat(messages) : encode(text),
         .max_tokens = options.max_tokens > 0 ? options.max_tokens : task.max_tokens,
         .stop = options.chat ? std::vector<std::string>() : task.stop,
         .facts = one.facts,
         .hidden = std::make_shared<const Json>(one.hidden)});
  }
  return questions;
}

Json grade_text(const Question& question, const std::string& text) {
  const auto expected = question.facts.at("expected").get<std::string>();
  if (question.facts.at("task") == "gsm8k") {
    const std::string marked = marked_answer(text);
    const std::string stated = marked.empty() ? stated_answer(text, /*number=*/true) : marked;
    return {{"stated", stated},
            {"correct", answers_agree(stated, expected)},
            {"strict", !marked.empty() && answers_agree(marked, expected)}};
  }
  if (question.facts.at("task") == "gpqa") {
    const std::string letter = stated_letter(text);
    return {{"stated", letter}, {"correct", letter == expected}};
  }
  std::string stated = stated_answer(text, /*number=*/false);
  if (stated.empty()) {
    stated = stated_answer(text, /*number=*/true);
  }
  return {{"stated", stated}, {"correct", answers_agree(stated, expected)}};
}

}  // namespace winnow::eval
