// Work in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace winnow::engine {

/// Runs functions, which must not throw, one after another on a separate thread.
class Background {
 public:
  Background() : thread_([this] { work(); }) {}
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
  std::deque<std::function<void()>> tasks_;  // the first is being run
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace winnow::engine
