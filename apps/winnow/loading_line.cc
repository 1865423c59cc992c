#include "apps/winnow/loading_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"

namespace winnow::cli {
namespace {

constexpr auto kShortWait = std::chrono::milliseconds(500);
constexpr auto kRedrawLoading = std::chrono::milliseconds(100);

}  // namespace

void LoadingLine::operator()(int done, int layers) {
  const auto now = Clock::now();
  if (done == 0) {
    next_ = now + kShortWait;
  }
  if (done == layers || interrupted()) {
    clear();
    stop_if_interrupted();
  } else if (now >= next_ && ::isatty(STDERR_FILENO) == 1) {
    print_note(fmt::format("\rloading: {} of {} layers\x1b[K", done, layers));
    drawn_ = true;
    next_ = now + kRedrawLoading;
  }
}

void LoadingLine::clear() {
  if (drawn_) {
    print_note("\r\x1b[K");
    drawn_ = false;
  }
}

}  // namespace winnow::cli
