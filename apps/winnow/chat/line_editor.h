// Lines from a terminal, with editing and history (libedit).
#pragma once

#include <histedit.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "apps/winnow/chat/input.h"

namespace winnow::cli {

/// Alt-Enter starts a new line, and pasted text keeps its lines.
class LineEditor : public Input {
 public:
  LineEditor(std::filesystem::path history, std::vector<std::string> words);
  ~LineEditor() override;

  InputLine read_line(const std::string& prompt) override;
  void remember(const std::string& text) override;

 private:
  struct EndEditor {
    void operator()(EditLine* editor) const { el_end(editor); }
  };
  struct EndHistory {
    void operator()(History* history) const { history_end(history); }
  };

  static LineEditor& of(EditLine* editor);
  static char* show_prompt(EditLine* editor);
  static int read_character(EditLine* editor, wchar_t* character);
  static unsigned char add_newline(EditLine* editor, int key);
  static unsigned char complete(EditLine* editor, int key);

  bool next_byte(char& byte);
  bool await_byte(int milliseconds) const;
  bool read_byte(char& byte);
  void look_for_paste();
  void refresh_after_signal();

  std::filesystem::path history_file_;
  std::vector<std::string> words_;
  std::string prompt_;
  std::deque<char> pending_;  // read from the terminal, but not yet used
  bool pasting_ = false;
  std::unique_ptr<History, EndHistory> history_;
  std::unique_ptr<EditLine, EndEditor> editor_;
};

}  // namespace winnow::cli
