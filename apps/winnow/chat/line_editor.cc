#include "apps/winnow/chat/line_editor.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <utility>

#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/screen.h"
#include "base/error.h"

namespace winnow::cli {
namespace {

constexpr int kRemembered = 1000;   // messages
constexpr int kSignalPause = 200;   // milliseconds between checks for signals
constexpr int kSequencePause = 20;  // milliseconds for the rest of an escape sequence
constexpr char kEscape = '\x1b';
constexpr char kQuote = '\x16';  // Ctrl-V: the next character is text, even if it is a command
constexpr std::string_view kPasteBegins = "\x1b[200~";
constexpr std::string_view kPasteEnds = "\x1b[201~";
constexpr std::string_view kMarkPastes = "\x1b[?2004h";
constexpr std::string_view kLeavePastes = "\x1b[?2004l";

volatile std::sig_atomic_t resized = 0;
volatile std::sig_atomic_t continued = 0;

void note_signal(int signal) {
  (signal == SIGWINCH ? resized : continued) = 1;
}

void watch(int signal) {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

// libedit uses the characters of the locale; ours are UTF-8.
void use_utf8() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

// Makes the terminal mark the beginning and end of a paste.
void mark_pastes(bool on) {
  if (!terminal_is_dumb()) {
    print_now(on ? kMarkPastes : kLeavePastes);
  }
}

}  // namespace

LineEditor::LineEditor(std::filesystem::path history, std::vector<std::string> words)
    : history_file_(std::move(history)), words_(std::move(words)) {
  use_utf8();
  watch(SIGWINCH);
  watch(SIGCONT);
  history_.reset(history_init());
  editor_.reset(el_init("winnow", stdin, stdout, stderr));
  require(history_ != nullptr && editor_ != nullptr, "the terminal cannot be set up for editing");
  HistEvent event;
  ::history(history_.get(), &event, H_SETSIZE, kRemembered);
  ::history(history_.get(), &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) {
    ::history(history_.get(), &event, H_LOAD, history_file_.c_str());
  }
  EditLine* const editor = editor_.get();
  el_set(editor, EL_CLIENTDATA, this);
  el_set(editor, EL_PROMPT, &LineEditor::show_prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, ::history, history_.get());
  el_set(editor, EL_GETCFN, &LineEditor::read_character);
  el_set(editor, EL_ADDFN, "new-line", "Starts a new line", &LineEditor::add_newline);
  el_set(editor, EL_ADDFN, "complete", "Completes a command", &LineEditor::complete);
  el_set(editor, EL_BIND, "\\e\\r", "new-line", nullptr);
  el_set(editor, EL_BIND, "\\e\\n", "new-line", nullptr);
  el_set(editor, EL_BIND, "\\t", "complete", nullptr);
  el_source(editor, nullptr);  // the user's settings in ~/.editrc
}

LineEditor::~LineEditor() = default;

InputLine LineEditor::read_line(const std::string& prompt) {
  prompt_ = prompt;
  pending_.clear();
  pasting_ = false;
  mark_pastes(true);
  // Before the prompt is shown: libedit does it afterwards, and a Ctrl-D typed in between is lost.
  el_set(editor_.get(), EL_PREP_TERM, 1);
  int count = 0;
  const char* const line = el_gets(editor_.get(), &count);
  mark_pastes(false);
  if (line == nullptr || count <= 0) {
    print_now("\n");
    return {interrupted() ? InputLine::Kind::interrupted : InputLine::Kind::end};
  }
  std::string text(line, static_cast<std::size_t>(count));
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return {InputLine::Kind::text, std::move(text)};
}

void LineEditor::remember(const std::string& text) {
  HistEvent event;
  ::history(history_.get(), &event, H_ENTER, text.c_str());
  errno = 0;
  if (!history_file_.empty() &&
      ::history(history_.get(), &event, H_SAVE, history_file_.c_str()) < 0) {
    const int code = errno;
    print_note(fmt::format("winnow: warning: {}: the history of this chat is not kept{}\n",
                           history_file_.string(),
                           code == 0 ? "" : fmt::format(": {}", std::strerror(code))));
    history_file_.clear();  // says so once
  }
}

LineEditor& LineEditor::of(EditLine* editor) {
  void* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  return *static_cast<LineEditor*>(self);
}

char* LineEditor::show_prompt(EditLine* editor) {
  return of(editor).prompt_.data();
}

unsigned char LineEditor::add_newline(EditLine* editor, int /*key*/) {
  return el_insertstr(editor, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

// Completes the line if exactly one word begins with it and the cursor is at its end.
unsigned char LineEditor::complete(EditLine* editor, int /*key*/) {
  const LineInfo* const line = el_line(editor);
  const std::string_view typed(line->buffer, static_cast<std::size_t>(line->cursor - line->buffer));
  const auto begins = [&](const std::string& word) { return word.starts_with(typed); };
  const auto& words = of(editor).words_;
  if (typed.empty() || line->cursor != line->lastchar ||
      std::ranges::count_if(words, begins) != 1) {
    return CC_ERROR;
  }
  const std::string rest = std::ranges::find_if(words, begins)->substr(typed.size()) + " ";
  return el_insertstr(editor, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

// For libedit: 1 and a character, 0 at the end of input, -1 after a Ctrl-C.
int LineEditor::read_character(EditLine* editor, wchar_t* character) {
  LineEditor& self = of(editor);
  std::mbstate_t state = {};
  for (char byte = 0; self.next_byte(byte);) {
    const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<std::size_t>(-1)) {
      state = {};  // skips bytes that are not UTF-8
    } else if (used != static_cast<std::size_t>(-2)) {
      return 1;
    }
  }
  return interrupted() ? -1 : 0;
}

// The next byte for libedit. Control characters in pasted text are text, too.
bool LineEditor::next_byte(char& byte) {
  if (pending_.empty()) {
    if (!read_byte(byte)) {
      return false;
    }
    pending_.push_back(byte);
    if (byte == kEscape) {
      look_for_paste();
      if (pasting_ && !pending_.empty()) {
        pending_.pop_front();  // a pasted escape must not run a command
      }
      return next_byte(byte);
    }
    if (pasting_ && static_cast<unsigned char>(byte) < ' ') {
      pending_.assign({kQuote, byte == '\r' ? '\n' : byte});
    }
  }
  byte = pending_.front();
  pending_.pop_front();
  return true;
}

// After an escape: reads on while it may be the mark of a paste's beginning or end, and removes
// a complete mark.
void LineEditor::look_for_paste() {
  const std::string_view mark = pasting_ ? kPasteEnds : kPasteBegins;
  while (pending_.size() < mark.size() && await_byte(kSequencePause)) {
    char byte = 0;
    if (!read_byte(byte)) {
      return;
    }
    pending_.push_back(byte);
    if (byte != mark[pending_.size() - 1]) {
      return;
    }
  }
  if (pending_.size() == mark.size()) {
    pending_.clear();
    pasting_ = !pasting_;
  }
}

bool LineEditor::await_byte(int milliseconds) const {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, milliseconds) > 0;
}

// False at the end of input and after a Ctrl-C.
bool LineEditor::read_byte(char& byte) {
  while (!await_byte(kSignalPause)) {
    if (interrupted()) {
      return false;
    }
    refresh_after_signal();
  }
  return !interrupted() && ::read(STDIN_FILENO, &byte, 1) == 1;
}

void LineEditor::refresh_after_signal() {
  if (std::exchange(resized, 0) != 0) {
    el_resize(editor_.get());
  }
  if (std::exchange(continued, 0) != 0) {  // another program may have changed the terminal's mode
    el_set(editor_.get(), EL_PREP_TERM, 0);
    el_set(editor_.get(), EL_PREP_TERM, 1);
    mark_pastes(true);
    el_set(editor_.get(), EL_REFRESH);
  }
}

}  // namespace winnow::cli
