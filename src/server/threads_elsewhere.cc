#include "server/threads_elsewhere.h"

#include <pthread.h>

#include <utility>

namespace winnow::server {

ThreadsElsewhere::ThreadsElsewhere() {
  if (::sched_getaffinity(0, sizeof(cores_), &cores_) != 0) {
    CPU_ZERO(&cores_);  // more cores than a set holds: they go where the system wants
  }
}

void ThreadsElsewhere::add(std::thread thread, const char* name) {
  ::pthread_setname_np(thread.native_handle(), name);
  const std::lock_guard lock(mutex_);
  threads_.push_back(std::move(thread));
}

void ThreadsElsewhere::leave_callers_core() {
  const int core = ::sched_getcpu();
  if (core < 0 || left_.exchange(core, std::memory_order_relaxed) == core) {
    return;
  }
  cpu_set_t others = cores_;
  CPU_CLR(static_cast<std::size_t>(core), &others);
  if (CPU_COUNT(&others) == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  for (std::thread& thread : threads_) {
    ::pthread_setaffinity_np(thread.native_handle(), sizeof(others), &others);
  }
}

void ThreadsElsewhere::join() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace winnow::server
