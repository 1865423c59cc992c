// A line at the bottom of the terminal that stays while text scrolls above it.
#pragma once

#include <string>
#include <string_view>

namespace winnow::cli {

/// On a terminal that is none, or too small, it shows nothing.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Takes the terminal's last line for `text`, cut to the terminal's width.
  void show(std::string_view text);
  /// Gives the line back.
  void clear();

 private:
  void reserve(int rows);

  bool terminal_;
  int rows_ = 0;  // of the terminal, while its last line is taken
};

}  // namespace winnow::cli
