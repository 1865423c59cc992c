#include "apps/winnow/chat/status_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "apps/winnow/output.h"

namespace winnow::cli {
namespace {

constexpr int kLeastRows = 4;

// VT100's sequences, which all terminals of today know.
constexpr std::string_view kSave =
    "\x1b"
    "7";
constexpr std::string_view kRestore =
    "\x1b"
    "8";

bool draws() {
  const char* kind = std::getenv("TERM");
  return output_is_terminal() && kind != nullptr && std::string_view(kind) != "dumb";
}

// The first `columns` characters of UTF-8 text, each one column wide.
std::string_view cut(std::string_view text, int columns) {
  std::size_t at = 0;
  for (int column = 0; at < text.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
    if (begins && column++ == columns) {
      break;
    }
  }
  return text.substr(0, at);
}

}  // namespace

StatusLine::StatusLine() : terminal_(draws()) {}

StatusLine::~StatusLine() {
  try {
    clear();
  } catch (...) {  // the terminal is gone
    rows_ = 0;
  }
}

void StatusLine::show(std::string_view text) {
  winsize size = {};
  if (!terminal_ || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < kLeastRows) {
    return;
  }
  if (rows_ != size.ws_row) {
    clear();
    reserve(size.ws_row);
  }
  print_now(fmt::format("{}\x1b[{};1H\x1b[2K\x1b[2m{}\x1b[0m{}", kSave, rows_,
                        cut(text, size.ws_col - 1), kRestore));
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
