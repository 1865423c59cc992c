// Any text as a data file of each benchmark: an Error, or questions that can be asked. What the
// file holds is an answer too, as a model might give it.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/error.h"
#include "eval/tasks/choice_formats.h"
#include "eval/tasks/text_tasks.h"

namespace {

using winnow::eval::DataLine;

constexpr const char* kChoiceTasks[] = {"mmlu", "hellaswag", "arc", "piqa", "boolq", "winogrande"};
constexpr const char* kTextTasks[] = {"gsm8k", "math",      "aime",
                                      "gpqa",  "humaneval", "livecodebench"};

void read_choices(const char* task, const std::vector<DataLine>& lines, int shots) {
  try {
    for (const auto& question :
         load_choices(*winnow::eval::find_choice_task(task), lines, lines, shots)) {
      if (question.answer >= question.choices.size()) {
        std::abort();
      }
    }
  } catch (const winnow::Error&) {
  }
}

void read_questions(const char* task, const std::vector<DataLine>& lines, int shots,
                    const std::string& answer) {
  const auto bytes = [](const std::string& text) {
    return std::vector<std::int32_t>(text.begin(), text.end());
  };
  try {
    const winnow::eval::TextTask& known = *winnow::eval::find_text_task(task);
    for (const auto& question : load_questions(known, lines, lines, {.shots = shots}, bytes)) {
      if (known.program == nullptr) {
        grade_text(question, answer);
      } else {
        known.program(*question.hidden, answer);
      }
    }
  } catch (const winnow::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<DataLine> lines;
  try {
    std::istringstream stream(text);
    lines = winnow::eval::read_data(stream, "data.jsonl");
  } catch (const winnow::Error&) {
    return 0;
  }
  for (const int shots : {0, 1}) {
    for (const char* task : kChoiceTasks) {
      read_choices(task, lines, shots);
    }
    for (const char* task : kTextTasks) {
      read_questions(task, lines, shots, text);
    }
  }
  return 0;
}
