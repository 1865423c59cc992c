#include "base/note.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

namespace winnow {
namespace {

std::atomic<bool> line_is_open = false;  // of standard output

bool outputs_are_one() {
  struct stat output = {};
  struct stat error = {};
  return ::fstat(STDOUT_FILENO, &output) == 0 && ::fstat(STDERR_FILENO, &error) == 0 &&
         output.st_dev == error.st_dev && output.st_ino == error.st_ino;
}

}  // namespace

void wrote_to_output(std::string_view text) {
  constexpr char kEscape = '\x1b';  // begins what is drawn elsewhere on the screen
  if (!text.empty() && text.front() != kEscape) {
    line_is_open = text.back() != '\n';
  }
}

void end_open_line() {
  if (line_is_open && outputs_are_one() && line_is_open.exchange(false)) {
    std::fflush(stdout);
    std::fputc('\n', stderr);
  }
}

void note(std::string_view line) {
  end_open_line();
  const std::string text = fmt::format("winnow: {}\n", line);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace winnow
