// Runs the winnow binary on its own terminal: keys in, screen out.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace winnow::testing {

struct TerminalKind {
  std::string term = "xterm";
  std::string locale = "C.UTF-8";
  unsigned short columns = 100;
};

/// A running winnow whose standard streams are a terminal of 24 lines.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments, const TerminalKind& kind = {});
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const;
  /// Waits until `text` arrives after the previous match, and drops the output up to it. False: it
  /// did not arrive within a minute, or winnow ended before.
  bool await(const std::string& text);
  /// All output so far, including escape sequences.
  [[nodiscard]] const std::string& transcript() const { return transcript_; }
  /// Waits for the end; returns the exit code, or 128 + signal.
  int wait();

 private:
  bool read_more(int milliseconds);

  int fd_ = -1;
  pid_t process_ = -1;
  std::string transcript_;
  std::size_t seen_ = 0;
  bool reaped_ = false;
};

}  // namespace winnow::testing
