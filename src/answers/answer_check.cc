#include "answers/answer_check.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <vector>

#include "answers/answer_spelling.h"
#include "answers/text.h"

namespace winnow::answers {
namespace {

// The content of the group that opens at `open`; nullopt if it is not closed.
std::optional<std::string> group_at(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) {
      return std::string(text.substr(open + 1, i - open - 1));
    }
  }
  return std::nullopt;
}

std::optional<std::string> last_boxed(std::string_view text) {
  for (const std::string_view command : {"\\boxed", "\\fbox"}) {
    const std::size_t at = text.rfind(command);
    if (at == std::string_view::npos) {
      continue;
    }
    const std::size_t after = at + command.size();
    if (after < text.size() && text[after] == '{') {
      return group_at(text, after);
    }
    const std::size_t begin = text.find_first_not_of(' ', after);  // "\boxed 5"
    if (begin != std::string_view::npos) {
      return std::string(text.substr(begin, text.find_first_of(" $\n", begin) - begin));
    }
  }
  return std::nullopt;
}

// The text from `at` to the end of the sentence or line; a dot between digits does not end it.
std::string sentence_from(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && text[end] != '\n' &&
         !(text[end] == '.' && (end + 1 == text.size() || !is_digit(text[end + 1])))) {
    ++end;
  }
  return std::string(text.substr(at, end - at));
}

// The parts of "a,b" at commas outside of brackets.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts{""};
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool is_bracketed(std::string_view text) {
  constexpr std::string_view kOpen = "([{";
  constexpr std::string_view kClose = ")]}";
  return text.size() >= 2 && kOpen.find(text.front()) != std::string_view::npos &&
         kClose.find(text.back()) != std::string_view::npos;
}

bool nearly_equal(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)});
}

bool values_agree(std::string_view answer, std::string_view expected) {
  const auto a = value_of(answer);
  const auto b = value_of(expected);
  if (!a || !b) {
    return false;
  }
  const bool a_percent = answer.ends_with("%");
  const bool b_percent = expected.ends_with("%");
  return nearly_equal(*a, *b) ||
         // Problems ask for "50 %" as "50", too: the sign alone makes no difference.
         (a_percent != b_percent &&
          nearly_equal(a_percent ? *a * 100.0 : *a, b_percent ? *b * 100.0 : *b));
}

bool lists_agree(std::vector<std::string> answer, std::vector<std::string> expected, bool ordered) {
  if (answer.size() != expected.size()) {
    return false;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (ordered) {
      if (!answers_agree(answer[i], expected[i])) {
        return false;
      }
      continue;
    }
    const auto found = std::ranges::find_if(
        answer, [&](const std::string& one) { return answers_agree(one, expected[i]); });
    if (found == answer.end()) {
      return false;
    }
    answer.erase(found);
  }
  return true;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

std::string stated_answer(std::string_view text, bool number) {
  if (const auto boxed = last_boxed(text)) {
    return *boxed;
  }
  for (const std::string_view phrase : {"answer is", "Answer is", "answer:", "Answer:"}) {
    const std::size_t at = text.rfind(phrase);
    if (at != std::string_view::npos) {
      const std::string sentence = sentence_from(text, at + phrase.size());
      const std::size_t begin = sentence.find_first_not_of(" :");
      if (begin != std::string::npos) {
        return number ? last_number(sentence) : sentence.substr(begin);
      }
    }
  }
  return number ? last_number(text) : "";
}

std::string marked_answer(std::string_view text) {
  const std::size_t mark = text.rfind("####");
  if (mark == std::string_view::npos) {
    return "";
  }
  const std::string_view rest = text.substr(mark + 4);
  const std::string_view line = rest.substr(0, rest.find('\n'));
  const std::size_t begin = line.find_first_of("-0123456789");
  if (begin == std::string_view::npos) {
    return "";
  }
  std::size_t end = begin + 1;
  while (end < line.size() && (is_digit(line[end]) || line[end] == '.' || line[end] == ',')) {
    ++end;
  }
  return last_number(line.substr(begin, end - begin));
}

std::string last_number(std::string_view text) {
  const std::string plain = without_thousands(text);
  std::size_t end = plain.size();
  while (end > 0 && !is_digit(plain[end - 1])) {
    --end;
  }
  std::size_t begin = end;
  bool has_dot = false;
  while (begin > 0 && (is_digit(plain[begin - 1]) || (plain[begin - 1] == '.' && !has_dot &&
                                                      begin >= 2 && is_digit(plain[begin - 2])))) {
    has_dot = has_dot || plain[begin - 1] == '.';
    --begin;
  }
  // The "-" is a sign unless it is the minus of "7-3" or a hyphen.
  if (begin > 0 && begin < end && plain[begin - 1] == '-' &&
      (begin == 1 || (!is_digit(plain[begin - 2]) &&
                      std::isalpha(static_cast<unsigned char>(plain[begin - 2])) == 0))) {
    --begin;
  }
  return plain.substr(begin, end - begin);
}

bool answers_agree(std::string_view given, std::string_view wanted) {
  const std::string answer = plain_spelling(given);
  const std::string expected = plain_spelling(wanted);
  if (answer.empty() || expected.empty()) {
    return answer == expected;
  }
  if (answer == expected || values_agree(answer, expected)) {
    return true;
  }
  if (is_bracketed(answer) && is_bracketed(expected)) {
    const bool set = expected.front() == '{';
    return answer.front() == expected.front() && answer.back() == expected.back() &&
           lists_agree(parts_of(std::string_view(answer).substr(1, answer.size() - 2)),
                       parts_of(std::string_view(expected).substr(1, expected.size() - 2)), !set);
  }
  const auto expected_parts = parts_of(without_thousands(expected));
  if (expected_parts.size() > 1) {  // "3, 5": solutions in any order
    return lists_agree(parts_of(without_thousands(answer)), expected_parts, /*ordered=*/false);
  }
  return lower(answer) == lower(expected) &&
         answer.size() > 1;  // "A" and "a" differ, "yes" does not
}

}  // namespace winnow::answers
