// Histograms of durations, in Prometheus's text format.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace winnow::server {

/// Counts seconds in buckets. May be observed from many threads.
class SecondsHistogram {
 public:
  static constexpr std::array kBounds{0.001, 0.0025, 0.005, 0.01,  0.025, 0.05, 0.1,
                                      0.25,  0.5,    1.0,   2.5,   5.0,   10.0, 30.0,
                                      60.0,  120.0,  300.0, 600.0, 1800.0};
  void observe(double seconds);
  void observe_since(std::chrono::steady_clock::time_point start) {
    observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  /// Appends the metric `name` to a page. `labels`: name="value",..., or empty.
  void render(std::string_view name, std::string_view help, std::string& page,
              std::string_view labels = {}) const;

 private:
  std::array<std::atomic<std::int64_t>, kBounds.size() + 1> counts_{};
  std::atomic<std::int64_t> microseconds_ = 0;
};

}  // namespace winnow::server
