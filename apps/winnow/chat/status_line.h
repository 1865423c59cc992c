// A line at the bottom of the terminal that stays while text scrolls above it.
#pragma once

#include <span>
#include <string>

namespace winnow::cli {

/// Shows nothing if the output is not a terminal, or the terminal is too small.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Shows these parts, as many as fit, in the terminal's last line.
  void show(std::span<const std::string> parts);
  /// Removes the line.
  void clear();

 private:
  void reserve(int rows);

  bool terminal_;
  int rows_ = 0;  // of the terminal, while the line is shown
};

}  // namespace winnow::cli
