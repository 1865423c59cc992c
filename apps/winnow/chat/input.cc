#include "apps/winnow/chat/input.h"

#include <iostream>
#include <utility>

#include "apps/winnow/chat/line_editor.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "checkpoint/replaceable_file.h"

namespace winnow::cli {
namespace {

constexpr const char* kMessagePrompt = "> ";
constexpr const char* kContinuedPrompt = "… ";

class PlainInput : public Input {
 public:
  InputLine read_line(const std::string& /*prompt*/) override {
    std::string line;
    if (std::getline(std::cin, line)) {
      return {InputLine::Kind::text, std::move(line)};
    }
    return {interrupted() ? InputLine::Kind::interrupted : InputLine::Kind::end};
  }
  void remember(const std::string& /*text*/) override {}
};

}  // namespace

void require_history(const std::filesystem::path& file) {
  require_replaceable(file,
                      text_that_begins("the history of a chat", "_HiStOrY_V2_\n"));  // libedit's
}

bool input_has_history() {
  return input_is_terminal() && output_is_terminal();
}

std::unique_ptr<Input> open_input(const std::filesystem::path& history,
                                  std::vector<std::string> words) {
  if (input_has_history()) {
    return std::make_unique<LineEditor>(history, std::move(words));
  }
  return std::make_unique<PlainInput>();
}

InputLine read_message(Input& input) {
  InputLine message = input.read_line(kMessagePrompt);
  while (message.kind == InputLine::Kind::text && message.text.ends_with('\\')) {
    message.text.back() = '\n';
    InputLine more = input.read_line(kContinuedPrompt);
    if (more.kind == InputLine::Kind::interrupted) {
      return more;
    }
    message.text += more.text;
    if (more.kind == InputLine::Kind::end) {
      break;
    }
  }
  if (message.kind == InputLine::Kind::text && !message.text.empty()) {
    input.remember(message.text);
  }
  return message;
}

}  // namespace winnow::cli
