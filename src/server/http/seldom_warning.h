// A rate-limited warning: events are counted, and reported now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace winnow::server {

/// May be used from many threads.
class SeldomWarning {
 public:
  /// `times`: events since the last warning. `why`: the argument of happened().
  using Tell = std::function<void(std::int64_t times, const std::string& why)>;

  /// Warns at once, and then at most once per `pause`.
  SeldomWarning(std::chrono::milliseconds pause, Tell tell)
      : pause_(pause), tell_(std::move(tell)) {}

  void happened(const std::string& why = {});
  [[nodiscard]] std::int64_t total() const;

 private:
  using Clock = std::chrono::steady_clock;

  const std::chrono::milliseconds pause_;
  const Tell tell_;
  mutable std::mutex mutex_;  // of the members below
  std::optional<Clock::time_point> last_;
  std::int64_t total_ = 0;
  std::int64_t told_ = 0;
};

}  // namespace winnow::server
