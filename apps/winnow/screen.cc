#include "apps/winnow/screen.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "apps/winnow/output.h"

namespace winnow::cli {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Number of UTF-8 characters, assuming one column each.
int width_of(std::string_view text) {
  return static_cast<int>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

bool terminal_is_dumb() {
  const std::string_view kind = variable("TERM");
  return kind.empty() || kind == "dumb";
}

bool output_takes_escapes() {
  return output_is_terminal() && !terminal_is_dumb();
}

bool shows_only_ascii() {
  if (variable("TERM") == "dumb") {
    return true;
  }
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first one that is set is used
    if (const std::string_view locale = variable(name); !locale.empty()) {
      return locale == "C" || locale == "POSIX";
    }
  }
  return false;  // containers have no locale, but are viewed on UTF-8 terminals
}

int columns_of(int file) {
  winsize size = {};
  return ::ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string_view part_separator() {
  return shows_only_ascii() ? " | " : " · ";
}

std::string fitting_parts(std::span<const std::string> parts, int columns) {
  std::string line;
  for (const std::string& part : parts) {
    const std::string longer = line.empty() ? part : line + std::string(part_separator()) + part;
    if (width_of(longer) > columns) {
      break;
    }
    line = longer;
  }
  return line;
}

std::string wrapped_parts(std::span<const std::string> parts, int columns) {
  std::string text;
  int column = 0;
  for (const std::string& part : parts) {
    const bool fits = columns == 0 || column + 3 + width_of(part) <= columns;
    const std::string between =
        text.empty() ? "" : (fits ? std::string(part_separator()) : std::string("\n "));
    column = (text.empty() || fits ? column : 0) + width_of(between) + width_of(part);
    text += between + part;
  }
  return text;
}

}  // namespace winnow::cli
