// The progress of long work, on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace winnow::cli {

/// "42s", "3m05s" or "2h10m".
std::string readable_duration(double seconds);

/// On a terminal, one line that is redrawn, with a bar, the rate and the time left, and that
/// disappears at the end; elsewhere a plain line every few seconds, so short work prints nothing.
class ProgressBar {
 public:
  /// "<label>  45% 1234/3500 <unit> ..."
  ProgressBar(std::string label, std::int64_t total, std::string unit);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// If units differ in length, pass `tokens`: the line then shows their number and rate.
  void update(std::int64_t done, std::optional<std::int64_t> tokens = {});
  /// Removes the bar, so that other output can follow.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::string line(std::int64_t done, std::optional<std::int64_t> tokens,
                                 double elapsed) const;

  std::string label_;
  std::int64_t total_;
  std::string unit_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace winnow::cli
