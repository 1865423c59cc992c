#include "apps/winnow/chat/status_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string_view>

#include "apps/winnow/output.h"
#include "apps/winnow/screen.h"

namespace winnow::cli {
namespace {

constexpr int kLeastRows = 4;

// VT100 sequences, which all current terminals support.
constexpr std::string_view kSave =
    "\x1b"
    "7";
constexpr std::string_view kRestore =
    "\x1b"
    "8";

}  // namespace

StatusLine::StatusLine() : terminal_(output_takes_escapes()) {}

StatusLine::~StatusLine() {
  try {
    clear();
  } catch (...) {  // the terminal is closed
    rows_ = 0;
  }
}

void StatusLine::show(std::span<const std::string> parts) {
  winsize size = {};
  if (!terminal_ || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < kLeastRows) {
    return;
  }
  if (rows_ != size.ws_row) {
    clear();
    reserve(size.ws_row);
  }
  print_now(fmt::format("{}\x1b[{};1H\x1b[2K\x1b[2m{}\x1b[0m{}", kSave, rows_,
                        fitting_parts(parts, size.ws_col - 1), kRestore));
}

// Scrolls once if the cursor is in the last line, then lets only the lines above it scroll.
void StatusLine::reserve(int rows) {
  print(
      fmt::format("\x1b"
                  "D\x1b[A{}\x1b[1;{}r{}",
                  kSave, rows - 1, kRestore));
  rows_ = rows;
}

void StatusLine::clear() {
  if (rows_ > 0) {
    print_now(fmt::format("{}\x1b[r\x1b[{};1H\x1b[2K{}", kSave, rows_, kRestore));
    rows_ = 0;
  }
}

}  // namespace winnow::cli
