#include "apps/winnow/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/winnow/output.h"

namespace winnow::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLines = std::chrono::seconds(5);
constexpr int kBarWidth = 20;

}  // namespace

std::string readable_duration(double seconds) {
  const std::int64_t whole = std::llround(seconds);
  return whole < 60     ? fmt::format("{}s", whole)
         : whole < 3600 ? fmt::format("{}m{:02}s", whole / 60, whole % 60)
                        : fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

ProgressBar::ProgressBar(std::string label, std::int64_t total, std::string unit)
    : label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(std::move(unit)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      next_(start_ + (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLines))) {}

void ProgressBar::update(std::int64_t done, std::optional<std::int64_t> tokens) {
  const auto now = Clock::now();
  if (now < next_) {
    return;
  }
  next_ = now + (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLines));
  const std::string text = line(done, tokens, std::chrono::duration<double>(now - start_).count());
  if (terminal_) {
    print_note(fmt::format("\r{}\x1b[K", text));
    drawn_ = true;
  } else {
    print_note(text + "\n");
  }
}

std::string ProgressBar::line(std::int64_t done, std::optional<std::int64_t> tokens,
                              double elapsed) const {
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0., 1.);
  const auto rate = [elapsed](std::int64_t of) {
    return elapsed > 0.0 ? static_cast<double>(of) / elapsed : 0.0;
  };
  const std::string left =
      done > 0 ? readable_duration(static_cast<double>(std::max<std::int64_t>(total_ - done, 0)) /
                                   rate(done))
               : "?";
  std::string bar;
  if (terminal_) {
    const int filled = static_cast<int>(share * kBarWidth);
    bar = fmt::format("[{:#<{}}{:.<{}}] ", "", filled, "", kBarWidth - filled);
  }
  const std::string speed = tokens ? fmt::format("{} tokens {:.0f} tok/s", *tokens, rate(*tokens))
                                   : fmt::format("{:.0f}/s", rate(done));
  return fmt::format("{} {}{:3.0f}% {}/{} {} {} ETA {}", label_, bar, 100.0 * share, done, total_,
                     unit_, speed, left);
}

void ProgressBar::clear() {
  if (drawn_) {
    print_note("\r\x1b[K");
    drawn_ = false;
  }
}

}  // namespace winnow::cli
