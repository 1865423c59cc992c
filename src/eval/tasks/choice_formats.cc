#include "eval/tasks/choice_formats.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "answers/text.h"
#include "base/error.h"

namespace winnow::eval {
namespace {

ChoiceQuestion with_one_context(const std::string& context,
                                const std::vector<std::string>& continuations, int answer) {
  ChoiceQuestion question;
  for (const std::string& continuation : continuations) {
    question.choices.push_back({context, continuation});
  }
  question.answer = static_cast<std::size_t>(answer);
  return question;
}

std::string stripped(const std::string& text) {
  constexpr const char* kSpace = " \t\n\r";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// {"question", "choices": [4 texts], "answer": 0 to 3 or "A" to "D", "subject"}
ChoiceQuestion parse_mmlu(const DataLine& line) {
  constexpr std::string_view kLetters = "ABCD";
  const auto choices = line.texts({"choices"});
  if (choices.size() != kLetters.size()) {
    line.reject({"choices"}, "a list of 4 texts");
  }
  const nlohmann::json* answer = line.find({"answer"});
  int index = 0;
  if (answer != nullptr && answer->is_string() && answer->get<std::string>().size() == 1 &&
      kLetters.find(answer->get<std::string>()) != std::string_view::npos) {
    index = static_cast<int>(kLetters.find(answer->get<std::string>()));
  } else {
    index = line.index({"answer"}, 0, 3);
  }
  std::string context = stripped(line.text({"question"}));
  for (std::size_t i = 0; i < choices.size(); ++i) {
    context += fmt::format("\n{}. {}", kLetters[i], choices[i]);
  }
  auto question = with_one_context(context + "\nAnswer:", {" A", " B", " C", " D"}, index);
  question.group = line.text({"subject"}, "");
  return question;
}

// HellaSwag's texts come from WikiHow and contain its markup.
std::string without_markup(const std::string& marked) {
  std::string text = stripped(marked);
  answers::replace_all(text, " [title]", ". ");
  for (std::size_t open = text.find('['); open != std::string::npos; open = text.find('[', open)) {
    const std::size_t close = text.find(']', open);
    if (close == std::string::npos) {
      break;
    }
    text.erase(open, close + 1 - open);
  }
  answers::replace_all(text, "  ", " ");
  return text;
}

std::string capitalised(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (!text.empty()) {
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  return text;
}

// {"activity_label", "ctx_a", "ctx_b", "endings": [4 texts], "label": 0 to 3}
ChoiceQuestion parse_hellaswag(const DataLine& line) {
  const auto endings = line.texts({"endings"});
  std::vector<std::string> continuations;
  for (const std::string& ending : endings) {
    continuations.push_back(fmt::format(" {}", without_markup(ending)));
  }
  const std::string context =
      without_markup(fmt::format("{}: {} {}", line.text({"activity_label"}), line.text({"ctx_a"}),
                                 capitalised(line.text({"ctx_b"}, ""))));
  return with_one_context(context, continuations,
                          line.index({"label"}, 0, static_cast<int>(endings.size()) - 1));
}

// AI2's {"question": {"stem", "choices": [{"text", "label"}]}, "answerKey"} or the hub's
// {"question", "choices": {"text": [], "label": []}, "answerKey"}
ChoiceQuestion parse_arc(const DataLine& line) {
  std::string stem;
  std::vector<std::string> texts;
  std::vector<std::string> labels;
  const nlohmann::json* question = line.find({"question"});
  if (question != nullptr && question->is_object()) {
    const DataLine inner = line.object({"question"});
    stem = inner.text({"stem"});
    const nlohmann::json* choices = inner.find({"choices"});
    if (choices == nullptr || !choices->is_array()) {
      inner.reject({"choices"}, "a list of choices");
    }
    for (const nlohmann::json& choice : *choices) {
      const DataLine one(choice, line.where());
      texts.push_back(one.text({"text"}));
      labels.push_back(one.text({"label"}));
    }
  } else {
    stem = line.text({"question"});
    const DataLine choices = line.object({"choices"});
    texts = choices.texts({"text"});
    labels = choices.texts({"label"});
  }
  const auto key = std::ranges::find(labels, line.text({"answerKey"}));
  if (labels.size() != texts.size()) {
    line.reject({"choices"}, "as many texts as labels");
  }
  if (key == labels.end()) {
    line.reject({"answerKey"}, fmt::format("one of {}", fmt::join(labels, ", ")));
  }
  for (std::string& text : texts) {
    text = fmt::format(" {}", text);
  }
  return with_one_context(fmt::format("Question: {}\nAnswer:", stem), texts,
                          static_cast<int>(key - labels.begin()));
}

// {"goal", "sol1", "sol2", "label": 0 or 1}
ChoiceQuestion parse_piqa(const DataLine& line) {
  return with_one_context(
      fmt::format("Question: {}\nAnswer:", line.text({"goal"})),
      {fmt::format(" {}", line.text({"sol1"})), fmt::format(" {}", line.text({"sol2"}))},
      line.index({"label"}, 0, 1));
}

// {"passage", "question", "answer": true or false} (SuperGLUE: "label")
ChoiceQuestion parse_boolq(const DataLine& line) {
  return with_one_context(
      fmt::format("{}\nQuestion: {}?\nAnswer:", line.text({"passage"}), line.text({"question"})),
      {" no", " yes"}, line.boolean({"answer", "label"}) ? 1 : 0);
}

// {"sentence" with one "_", "option1", "option2", "answer": 1 or 2}. The scored text is the same
// for both: the rest of the sentence (partial evaluation, Trinh and Le 2018).
ChoiceQuestion parse_winogrande(const DataLine& line) {
  const std::string sentence = line.text({"sentence"});
  const std::size_t gap = sentence.find('_');
  if (gap == std::string::npos) {
    line.reject({"sentence"}, "a text with a gap \"_\"");
  }
  const std::string rest = stripped(sentence.substr(gap + 1));
  ChoiceQuestion question;
  for (const std::string& option : {line.text({"option1"}), line.text({"option2"})}) {
    question.choices.push_back({sentence.substr(0, gap) + option, fmt::format(" {}", rest)});
  }
  question.answer = static_cast<std::size_t>(line.index({"answer"}, 1, 2)) - 1;
  return question;
}

constexpr std::array kTasks{
    ChoiceTask{"mmlu", parse_mmlu, false},   ChoiceTask{"hellaswag", parse_hellaswag, true},
    ChoiceTask{"arc", parse_arc, true},      ChoiceTask{"piqa", parse_piqa, true},
    ChoiceTask{"boolq", parse_boolq, false}, ChoiceTask{"winogrande", parse_winogrande, false},
};

std::string demonstration(const ChoiceQuestion& question) {
  const Choice& answer = question.choices[question.answer];
  return answer.context + answer.continuation;
}

// "high_school_physics" -> "high school physics"
std::string description(const ChoiceTask& task, const std::string& subject) {
  if (task.name != "mmlu") {
    return "";
  }
  std::string name = subject;
  std::ranges::replace(name, '_', ' ');
  return fmt::format("The following are multiple choice questions (with answers) about {}.\n\n",
                     name.empty() ? "various subjects" : name);
}

}  // namespace

const ChoiceTask* find_choice_task(std::string_view name) {
  const auto* found = std::ranges::find(kTasks, name, &ChoiceTask::name);
  return found == kTasks.end() ? nullptr : found;
}

std::vector<ChoiceQuestion> load_choices(const ChoiceTask& task, const std::vector<DataLine>& data,
                                         const std::vector<DataLine>& shots_data, int shots) {
  std::vector<ChoiceQuestion> demonstrations;
  for (const DataLine& line : shots_data) {
    demonstrations.push_back(task.parse(line));
  }
  std::vector<ChoiceQuestion> questions;
  for (const DataLine& line : data) {
    ChoiceQuestion question = task.parse(line);
    const std::string itself = demonstration(question);
    std::string before = description(task, question.group);
    int count = 0;
    for (const ChoiceQuestion& one : demonstrations) {
      if (count < shots && one.group == question.group && demonstration(one) != itself) {
        before += demonstration(one) + "\n\n";
        ++count;
      }
    }
    require(count == shots, "{}: expected {} demonstrations for it{}, found {}", line.where(),
            shots, question.group.empty() ? "" : fmt::format(" of the subject {}", question.group),
            count);
    for (Choice& choice : question.choices) {
      choice.context = before + choice.context;
    }
    question.id = std::to_string(questions.size());
    questions.push_back(std::move(question));
  }
  return questions;
}

}  // namespace winnow::eval
