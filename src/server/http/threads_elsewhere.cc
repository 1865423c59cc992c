#include "server/http/threads_elsewhere.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <utility>

namespace winnow::server {
namespace {

// The cores of the process except `left`; none if the system does not report them.
cpu_set_t cores_but(int left) {
  cpu_set_t cores;
  if (::sched_getaffinity(::getpid(), sizeof(cores), &cores) != 0) {
    CPU_ZERO(&cores);  // more cores than a set holds
  }
  if (left >= 0) {
    CPU_CLR(static_cast<std::size_t>(left), &cores);
  }
  return cores;
}

}  // namespace

void ThreadsElsewhere::start(const char* name, std::function<void()> body) {
  std::thread thread([this, name, body = std::move(body)] { run(name, body); });
  const std::lock_guard lock(mutex_);
  threads_.push_back(std::move(thread));
}

void ThreadsElsewhere::run(const char* name, const std::function<void()>& body) {
  ::pthread_setname_np(::pthread_self(), name);
  {
    const std::lock_guard lock(mutex_);
    running_.push_back(::gettid());
    bind_all();
  }
  body();
  const std::lock_guard lock(mutex_);
  std::erase(running_, ::gettid());
}

void ThreadsElsewhere::leave_callers_core() {
  last_call_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  const int core = ::sched_getcpu();
  if (core >= 0 && left_.exchange(core, std::memory_order_relaxed) != core) {
    const std::lock_guard lock(mutex_);
    bind_all();
  }
}

void ThreadsElsewhere::return_after(std::chrono::nanoseconds rest) {
  const Clock::time_point last(Clock::duration(last_call_.load(std::memory_order_relaxed)));
  if (left_.load(std::memory_order_relaxed) >= 0 && Clock::now() - last > rest) {
    left_ = -1;
    const std::lock_guard lock(mutex_);
    bind_all();
  }
}

// Call with the mutex held.
void ThreadsElsewhere::bind_all() {
  const cpu_set_t cores = cores_but(left_);
  if (CPU_COUNT(&cores) == 0) {
    return;
  }
  for (const pid_t thread : running_) {
    ::sched_setaffinity(thread, sizeof(cores), &cores);
  }
}

std::size_t ThreadsElsewhere::running() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
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
