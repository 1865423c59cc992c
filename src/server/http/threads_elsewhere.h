// Threads that stay off another thread's core.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace winnow::server {

/// Threads that avoid the core of the thread that gives them work. The kernel often runs a woken
/// thread on the core of the thread that woke it, so the engine's thread would wait. (Among the
/// cores of the process; no effect with one core.)
class ThreadsElsewhere {
 public:
  ThreadsElsewhere() = default;
  ~ThreadsElsewhere() { join(); }
  ThreadsElsewhere(const ThreadsElsewhere&) = delete;
  ThreadsElsewhere& operator=(const ThreadsElsewhere&) = delete;

  /// Starts one more thread. `name`: at most 15 characters.
  void start(const char* name, std::function<void()> body);
  /// Keeps them off the caller's current core. Takes a few nanoseconds while that core is the same.
  void leave_callers_core();
  /// Lets them use all cores again if leave_callers_core() was not called for this long.
  void return_after(std::chrono::nanoseconds rest);
  /// Threads that have started and not ended.
  [[nodiscard]] std::size_t running() const;
  /// Waits until they end.
  void join();

 private:
  using Clock = std::chrono::steady_clock;

  void run(const char* name, const std::function<void()>& body);
  void bind_all();

  std::atomic<int> left_ = -1;  // the core that they avoid
  std::atomic<Clock::rep> last_call_ = 0;
  mutable std::mutex mutex_;    // of the members below
  std::vector<pid_t> running_;  // system thread ids: an ended thread can no longer be bound
  std::vector<std::thread> threads_;
};

}  // namespace winnow::server
