// What the user writes in a chat.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace winnow::cli {

/// A line, or why there is none.
struct InputLine {
  enum class Kind { text, interrupted, end } kind = Kind::end;
  std::string text = {};
};

class Input {
 public:
  virtual ~Input() = default;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /// Without its newline. On a terminal it may be several lines.
  virtual InputLine read_line(const std::string& prompt) = 0;
  /// Can be called up again from now on.
  virtual void remember(const std::string& text) = 0;

 protected:
  Input() = default;
};

/// Standard input: on a terminal with editing, history and Tab for `words`, else line by line. The
/// history is read from `history` and written there; empty: it ends with the program.
std::unique_ptr<Input> open_input(const std::filesystem::path& history,
                                  std::vector<std::string> words);

/// A message: a line, and those that follow a line that ends in a backslash.
InputLine read_message(Input& input);

}  // namespace winnow::cli
