// Measures wall time between events.
#pragma once

#include <chrono>
#include <utility>

namespace winnow {

class Stopwatch {
 public:
  /// Starts a new lap; returns the seconds since the last one or the beginning.
  double lap() {
    const auto now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(start_, now)).count();
  }

  /// The same without starting a new lap.
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace winnow
