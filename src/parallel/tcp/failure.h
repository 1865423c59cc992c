// Why a group of TCP ranks has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace winnow::parallel {

/// The first failure of a group, if there is one. Any thread may call it.
class TcpFailure {
 public:
  /// `on_set` is called by the thread that sets it.
  explicit TcpFailure(std::function<void()> on_set) : on_set_(std::move(on_set)) {}

  /// Returns false if there is one already.
  bool set(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (why_) {
        return false;
      }
      why_ = why;
      is_set_ = true;
    }
    changed_.notify_all();
    on_set_();
    return true;
  }

  [[nodiscard]] bool is_set() const { return is_set_; }

  /// Waits up to `patience` for a failure.
  std::optional<std::string> wait(std::chrono::duration<double> patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return why_.has_value(); });
    return why_;
  }

 private:
  std::function<void()> on_set_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> why_;
  std::atomic<bool> is_set_ = false;
};

}  // namespace winnow::parallel
