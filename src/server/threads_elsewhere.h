// Threads that keep off another thread's core.
#pragma once

#include <sched.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace winnow::server {

/// Threads that do not run on the core of a thread that gives them work. Whoever is woken often
/// gets the very core of who wakes it, and the engine's own thread would wait; one of its workers
/// can be done without for a while. (With one core nothing changes.)
class ThreadsElsewhere {
 public:
  /// They may use the cores that the caller may use now.
  ThreadsElsewhere();
  ~ThreadsElsewhere() { join(); }
  ThreadsElsewhere(const ThreadsElsewhere&) = delete;
  ThreadsElsewhere& operator=(const ThreadsElsewhere&) = delete;

  /// One thread more. `name`: at most 15 characters.
  template <class Body>
  void start(const char* name, Body body) {
    add(std::thread(std::move(body)), name);
  }
  /// Keeps them off the core that the caller is on. Costs a few nanoseconds while that is the same.
  void leave_callers_core();
  /// Waits for their ends.
  void join();

 private:
  void add(std::thread thread, const char* name);

  cpu_set_t cores_;
  std::atomic<int> left_ = -1;  // the core that they are kept off
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace winnow::server
