#include "hub/workers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/no_signals.h"

namespace winnow::hub {
namespace {

constexpr std::size_t kConnections = 8;
constexpr auto kTick = std::chrono::milliseconds(100);

class Workers {
 public:
  using Work = std::function<void(HttpClient&, std::size_t)>;

  Workers(const Environment& environment, std::size_t count, const Work& work)
      : environment_(environment), count_(count), work_(work) {}

  void run(const std::function<void()>& tick) {
    const std::size_t threads = std::min(count_, kConnections);
    running_ = threads;
    std::vector<std::jthread> pool;
    {
      const NoSignals inherited;  // this thread handles Ctrl-C
      for (std::size_t i = 0; i < threads; ++i) {
        pool.emplace_back([this] { work_through(); });
      }
    }
    try {
      while (!finished()) {
        tick();
      }
      tick();
    } catch (...) {
      give_up(std::current_exception());
    }
    pool.clear();
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void work_through() {
    try {
      HttpClient client(environment_, stop_);
      for (std::size_t i = next_++; i < count_ && !stop_; i = next_++) {
        work_(client, i);
      }
    } catch (...) {
      give_up(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  void give_up(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = std::move(failure);
    }
    stop_ = true;
  }

  bool finished() {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, kTick, [&] { return running_ == 0; });
  }

  const Environment& environment_;
  std::size_t count_;
  const Work& work_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

void work_in_parallel(const Environment& environment, std::size_t count,
                      const std::function<void(HttpClient&, std::size_t)>& work,
                      const std::function<void()>& tick) {
  Workers(environment, count, work).run(tick);
}

}  // namespace winnow::hub
