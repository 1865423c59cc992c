#include "base/note.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace winnow {

void note(std::string_view line) {
  const std::string text = fmt::format("winnow: {}\n", line);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace winnow
