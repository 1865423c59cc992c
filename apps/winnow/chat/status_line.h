// A line at the bottom of the terminal that stays while text scrolls above it.
#pragma once

#include <span>
#include <string>

namespace winnow::cli {

/// On a terminal that is none, or too small, it shows nothing.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Takes the terminal's last line for these parts, as far as its width goes.
  void show(std::span<const std::string> parts);
  /// Gives the line back.
  void clear();

 private:
  void reserve(int rows);

  bool terminal_;
  int rows_ = 0;  // of the terminal, while its last line is taken
};

}  // namespace winnow::cli
