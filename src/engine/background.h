// Runs work in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace winnow::engine {

/// Runs functions, which must not throw, on threads of its own. They start in order; a single
/// thread runs them one after another.
class Background {
 public:
  explicit Background(int threads = 1);
  /// Runs all queued functions first.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void run(std::function<void()> task);
  /// Waits until all queued functions have run.
  void wait();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  int running_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace winnow::engine
