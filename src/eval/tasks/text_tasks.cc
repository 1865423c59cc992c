#include "eval/tasks/text_tasks.h"

#include <algorithm>

#include "answers/answer_check.h"
#include "base/error.h"

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

// {"problem", "answer", "solution"}; AIME spells them as it likes, and has no solutions.
TextCase parse_math(const DataLine& line) {
  const std::string problem = line.text({"problem", "Problem", "question"});
  const nlohmann::json* answer = line.find({"answer", "Answer"});
  const std::string expected = answer != nullptr && answer->is_number_integer()
                                   ? answer->dump()
                                   : line.text({"answer", "Answer"});
  const std::string prompt = fmt::format("Problem:\n{}\n\nSolution:", problem);
  TextCase result{
      prompt,
      problem + "\nPlease reason step by step, and put your final answer within \\boxed{}.",
      line.text({"solution", "Solution"}, ""),
      {{"task", "math"}, {"expected", expected}}};
  for (const char* field : {"subject", "level"}) {
    if (const nlohmann::json* value = line.find({field})) {
      result.facts[field] = *value;
    }
  }
  return result;
}

// {"task_id", "prompt", "entry_point", "test"}
TextCase parse_humaneval(const DataLine& line) {
  const std::string prompt = line.text({"prompt"});
  return {prompt,
          fmt::format("Complete this Python function. Answer with the whole function in one code "
                      "block.\n\n```python\n{}```",
                      prompt),
          "",
          {{"task", "humaneval"},
           {"task_id", line.text({"task_id"})},
           {"prompt", prompt},
           {"entry_point", line.text({"entry_point"})},
           {"test", line.text({"test"})}}};
}

const std::vector<TextTask>& all_tasks() {
  static const std::vector<TextTask> tasks{
      {"gsm8k", parse_gsm8k, {"Question:"}, 256},
      {"math", parse_math, {"Problem:"}, 1024},
      {"aime", parse_math, {"Problem:"}, 4096},
      {"humaneval", parse_humaneval, {"\nclass", "\ndef", "\n#", "\nif", "\nprint"}, 512},
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
         .facts = one.facts});
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
  std::string stated = stated_answer(text, /*number=*/false);
  if (stated.empty()) {
    stated = stated_answer(text, /*number=*/true);
  }
  return {{"stated", stated}, {"correct", answers_agree(stated, expected)}};
}

std::string code_of(const std::string& text) {
  const std::size_t fence = text.find("```");
  if (fence == std::string::npos) {
    return text;
  }
  const std::size_t begin = text.find('\n', fence);
  if (begin == std::string::npos) {
    return "";
  }
  return text.substr(begin + 1, text.find("```", begin) - begin - 1);
}

Json grade_program(const SandboxedPython& python, const Question& question,
                   const std::string& text) {
  const auto field = [&question](const char* name) {
    return question.facts.at(name).get<std::string>();
  };
  const std::string code = code_of(text);
  // A chat model writes the function again, a completion goes on with it.
  const std::string prompt = field("prompt");
  const bool whole = code.find("def " + field("entry_point")) != std::string::npos;
  const std::size_t definition = prompt.find("def " + field("entry_point"));
  const std::string program = (whole ? prompt.substr(0, definition) : prompt) + code;
  const auto verdict = python.passes(
      fmt::format("{}\n{}\ncheck({})\n", program, field("test"), field("entry_point")));
  return {{"correct", verdict.passed}, {"why", verdict.why}};
}

double pass_at_k(int n, int correct, int k) {
  if (n - correct < k) {
    return 1.0;
  }
  double none = 1.0;
  for (int i = n - correct + 1; i <= n; ++i) {
    none *= 1.0 - static_cast<double>(k) / i;
  }
  return 1.0 - none;
}

}  // namespace winnow::eval
