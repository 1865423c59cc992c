#include "eval/tasks/gpqa.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "answers/answer_check.h"

namespace winnow::eval {
namespace {

constexpr std::string_view kLetters = "ABCD";

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos
             ? ""
             : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

// FNV-1a: the same on every machine, which std::hash need not be.
std::uint64_t hash_of(std::string_view first, std::string_view second) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const std::string_view part : {first, second}) {
    for (const char byte : part) {
      hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3ULL;
    }
  }
  return hash;
}

bool is_word(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0;
}

// The letter at the beginning of `text`, after text that may precede it: " is: **(", "\boxed{".
std::string leading_letter(std::string_view text) {
  constexpr std::array<std::string_view, 8> kWords{"is",     "boxed",  "text",   "textbf",
                                                   "mathrm", "mathbf", "option", "choice"};
  for (std::size_t at = 0; at < text.size();) {
    if (!is_word(text[at])) {
      if (std::string_view(" \t\n*:_`\"'($[{\\").find(text[at]) == std::string_view::npos) {
        return "";
      }
      ++at;
      continue;
    }
    const auto end = static_cast<std::size_t>(std::ranges::find_if_not(text.substr(at), is_word) -
                                              text.substr(at).begin());
    const std::string_view word = text.substr(at, end);
    if (word.size() == 1 && kLetters.find(word[0]) != std::string_view::npos) {
      return std::string(word);
    }
    if (std::ranges::find(kWords, word) == kWords.end()) {
      return "";
    }
    at += end;
  }
  return "";
}

}  // namespace

TextCase parse_gpqa(const DataLine& line) {
  const std::string question = trimmed(line.text({"Question"}));
  const std::string correct = trimmed(line.text({"Correct Answer"}));
  std::array<std::string, 4> choices{correct, trimmed(line.text({"Incorrect Answer 1"})),
                                     trimmed(line.text({"Incorrect Answer 2"})),
                                     trimmed(line.text({"Incorrect Answer 3"}))};
  std::ranges::sort(choices, {}, [&](const std::string& choice) {
    return std::pair(hash_of(question, choice), choice);
  });
  std::string text = question + "\n\n";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    text += fmt::format("{}) {}\n", kLetters[i], choices[i]);
  }
  const auto place =
      static_cast<std::size_t>(std::ranges::find(choices, correct) - choices.begin());
  const std::string letter(1, kLetters[place]);
  const std::string worked = line.text({"Explanation"}, "");
  TextCase result{
      .prompt = fmt::format("Question: {}Answer:", text),
      .message = fmt::format(
          "Answer the following multiple choice question. The last line of your response should be "
          "of the following format: 'Answer: $LETTER' (without quotes) where LETTER is one of "
          "ABCD. Think step by step before answering.\n\n{}",
          trimmed(text)),
      .solution = worked.empty() ? "" : fmt::format("{}\n\nAnswer: {}", trimmed(worked), letter),
      .facts = {{"task", "gpqa"}, {"expected", letter}}};
  if (const nlohmann::json* domain = line.find({"High-level domain"})) {
    result.facts["domain"] = *domain;
  }
  return result;
}

std::string stated_letter(std::string_view text) {
  constexpr std::string_view kAnswer = "answer";
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char byte) { return static_cast<char>(std::tolower(byte)); });
  for (std::size_t at = lower.rfind(kAnswer); at != std::string::npos;
       at = at == 0 ? std::string::npos : lower.rfind(kAnswer, at - 1)) {
    if (std::string letter = leading_letter(text.substr(at + kAnswer.size())); !letter.empty()) {
      return letter;
    }
  }
  const std::string boxed = answers::stated_answer(text, /*number=*/false);
  std::string letter = leading_letter(boxed);
  return letter.empty() ? leading_letter(text) : letter;
}

}  // namespace winnow::eval
