#include "answers/answer_spelling.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "answers/text.h"

namespace winnow::answers {
namespace {

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

// The position of the closing brace of the group that opens at `open`, or npos.
std::size_t closing_brace(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

// \text{ cm} after a digit, brace or parenthesis is a unit and removed; others keep their content.
void open_texts(std::string& text) {
  for (const std::string_view command : {"\\text", "\\mathrm", "\\mbox", "\\textbf"}) {
    for (std::size_t at = text.find(command); at != std::string::npos;
         at = text.find(command, at)) {
      const std::size_t open = at + command.size();
      const std::size_t close =
          open < text.size() && text[open] == '{' ? closing_brace(text, open) : std::string::npos;
      if (close == std::string::npos) {
        ++at;
        continue;
      }
      const bool unit =
          at > 0 && (is_digit(text[at - 1]) || text[at - 1] == '}' || text[at - 1] == ')');
      std::string content = unit ? "" : text.substr(open + 1, close - open - 1);
      std::size_t end = close + 1;
      if (unit && text.substr(end).starts_with("^")) {  // cm^2
        end += 1;
        end = end < text.size() && text[end] == '{' ? closing_brace(text, end) : end;
        end = end == std::string::npos ? text.size() : std::min(text.size(), end + 1);
      }
      text.replace(at, end - at, content);
    }
  }
}

// "5cm", "12dollars": removes letters after the digits with which the text begins.
void drop_unit_words(std::string& text) {
  const std::size_t begin = text.starts_with("-") ? 1 : 0;
  const std::size_t end = text.find_first_not_of("0123456789.,", begin);
  if (end == std::string::npos || end == begin) {
    return;
  }
  const bool letters =
      std::all_of(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), is_letter);
  if (letters && text.size() - end > 1) {  // a single letter is a variable
    text.resize(end);
  }
}

}  // namespace

std::string plain_spelling(std::string_view given) {
  std::string text(given);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 26> kRewrites{{
      {"\\left", ""},    {"\\right", ""},   {"\\!", ""},
      {"\\,", ""},       {"\\;", ""},       {"\\ ", ""},
      {"\\$", ""},       {"$", ""},         {"\\%", "%"},
      {"dfrac", "frac"}, {"tfrac", "frac"}, {"^{\\circ}", ""},
      {"^\\circ", ""},   {"\\circ", ""},    {"\\{", "{"},
      {"\\}", "}"},      {"\\quad", ""},    {"\\displaystyle", ""},
      {"−", "-"},        {"π", "\\pi"},     {"×", "*"},
      {"√", "\\sqrt"},   {"°", ""},         {"€", ""},
      {"£", ""},         {"\\dots", "..."},
  }};
  for (const auto& [what, by] : kRewrites) {
    replace_all(text, what, by);
  }
  std::erase_if(text, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  open_texts(text);
  while (text.ends_with(".") || text.ends_with(",")) {
    text.pop_back();
  }
  // "x=5", but not "x+y=5".
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && equals <= 2 && equals > 0 && is_letter(text[0]) &&
      text.find('=', equals + 1) == std::string::npos) {
    text.erase(0, equals + 1);
  }
  drop_unit_words(text);
  return text;
}

std::string without_thousands(std::string_view text) {
  const auto digits_at = [text](std::size_t at, std::size_t count) {
    return at + count <= text.size() && std::ranges::all_of(text.substr(at, count), is_digit);
  };
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool separates = text[i] == ',' && i > 0 && is_digit(text[i - 1]) &&
                           digits_at(i + 1, 3) && !digits_at(i + 4, 1);
    if (!separates) {
      result += text[i];
    }
  }
  return result;
}

}  // namespace winnow::answers
