// The user's input in a chat.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace winnow::cli {

/// A line, or the reason why there is none.
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
  /// Adds `text` to the history.
  virtual void remember(const std::string& text) = 0;

 protected:
  Input() = default;
};

/// Throws Error if a history must not be kept in `file`: it holds something else.
void require_history(const std::filesystem::path& file);

/// Whether open_input() keeps a history.
bool input_has_history();

/// Standard input: on a terminal with editing, history and Tab completion of `words`, else line by
/// line. The history is read from and written to `history`; empty: it is not stored.
std::unique_ptr<Input> open_input(const std::filesystem::path& history,
                                  std::vector<std::string> words);

/// A message: a line, and those that follow a line that ends in a backslash.
InputLine read_message(Input& input);

}  // namespace winnow::cli
